"""Files on disk: where they lie, how they are taken over, checked and read. Everything here blocks: call it in threads.

A new file is complete under a temporary name before a rename gives it its final one, so that a crash at any moment
leaves whole files or rubbish in `tmp`. Nothing is synced here: see syncer.py.
"""

from __future__ import annotations

import errno
import json
import os
import stat
import uuid
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from crc32c import crc32c

from rhino.errors import IntegrityError, InvalidRequestError, NoSpaceError, RhinoError, UnknownError
from rhino.failpoints import hit
from rhino.ids import GroupId, StoreId
from worker_runtime.storage.reserving import reserve
from worker_runtime.storage.spares import create
from worker_runtime.storage.spreading import spread_subfolders

Piece = bytes | memoryview
# Errors of the process or the system, which say nothing about the file.
NOT_THE_FILE = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN, errno.EINTR})
READ_BYTES = 512 * 1024  # one read while checking: stays in the processor's cache until its checksum is computed
RESERVE_BYTES_MIN = 1024 * 1024  # smaller files are written sooner than space could be reserved
_METADATA_BYTES_MAX = 64 * 1024 * 1024  # of the `metadata` entry of a zip, unpacked


@dataclass(frozen=True, slots=True)
class Seal:
    """What a file looked like when it was stored: a later difference means that somebody has changed it."""

    size_bytes: int
    mtime_ns: int


@dataclass(frozen=True, slots=True)
class Checked:
    """A complete file with its checksum. `same_as`: the bytes are those of a stored file whose content has this name;
    `linked`: and it is a hard link of that, so they were not read."""

    seal: Seal
    crc32c: int
    same_as: str = ""
    linked: bool = False


class Layout:
    """Folders of one sidecar, all on one file system."""

    def __init__(self, data_dir: Path) -> None:
        self.root = data_dir
        self.store = data_dir / "store"
        self.inbox = data_dir / "inbox"
        self.tmp = data_dir / "tmp"
        self.partial = data_dir / "partial"
        self.spare = data_dir / "spare"
        self.index = data_dir / "index"

    def create(self) -> None:
        for folder in (self.store, self.inbox, self.tmp, self.partial, self.spare):
            folder.mkdir(parents=True, exist_ok=True)
        for folder in (self.inbox, self.spare):
            spread_subfolders(folder)

    def path(self, store: StoreId, name: str) -> Path:
        return self.store / f"{store}/{name}"

    def group(self, group: GroupId) -> Path:
        return self.store / str(group)

    def temporary(self) -> Path:
        return self.tmp / uuid.uuid4().hex


def storage_error(error: OSError, doing: str) -> RhinoError:
    """NoSpaceError when the disk is full, else IntegrityError: the disk fails."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return NoSpaceError(f"{doing}: {error.strerror}")
    return IntegrityError(f"{doing}: {error}")


def checksum(fd: int) -> int:
    """crc32c of a file from its start."""
    buffer = memoryview(bytearray(min(os.fstat(fd).st_size + 1, READ_BYTES)))
    value = offset = 0
    while count := os.preadv(fd, [buffer], offset):
        value = crc32c(buffer[:count], value)
        offset += count
    return value


def seal_of(status: os.stat_result) -> Seal:
    return Seal(status.st_size, status.st_mtime_ns)


def size_of(path: Path) -> int:
    """0 when there is none: whoever opens it will say so."""
    try:
        return os.lstat(path).st_size
    except OSError:
        return 0


def open_inbox_file(path: Path, device: int) -> int:
    """Opens a client's file: never through a link, only a regular file on the store's own file system."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        raise UnknownError(f"inbox file {path} does not exist") from None
    except OSError as error:
        raise InvalidRequestError(f"inbox file {path}: {error.strerror}; it must be a plain file") from error
    status = os.fstat(fd)
    if not stat.S_ISREG(status.st_mode) or status.st_dev != device:
        os.close(fd)
        raise InvalidRequestError(f"inbox file {path}: must be a regular file on the store's file system")
    return fd


def check_inbox_file(
    path: Path, device: int, stored: Iterable[tuple[Path, Checked]] = ()
) -> tuple[Checked, tuple[int, int]]:
    """Checksum of a client's file, and its identity (device, inode) for `move_in`.

    `stored`: files of the same size, as the check of a hard link of each would find it. Such a link is not read; a copy
    is, and compared.
    """
    fd = open_inbox_file(path, device)
    try:
        known = _linked(os.fstat(fd), stored)
        crc = checksum(fd) if known is None else known.crc32c
        status = os.fstat(fd)
        checked = known or Checked(seal_of(status), crc, _copied(fd, crc, stored))
    finally:
        os.close(fd)
    return checked, (status.st_dev, status.st_ino)


def _copied(fd: int, crc: int, stored: Iterable[tuple[Path, Checked]]) -> str:
    """`same_as` of the stored file with the very same bytes, if any."""
    for path, checked in stored:
        if checked.crc32c == crc and _same_bytes(fd, path):
            return checked.same_as
    return ""


def _same_bytes(fd: int, path: Path) -> bool:
    offset = 0
    try:
        for piece in read_pieces(path, READ_BYTES):
            if os.pread(fd, len(piece), offset) != piece:
                return False
            offset += len(piece)
    except OSError:
        return False  # collected meanwhile
    return offset == os.fstat(fd).st_size


def same_file(one: Path, other: Path) -> bool:
    """Both are there, and are hard links of one another."""
    try:
        return os.path.samestat(os.lstat(one), os.lstat(other))
    except OSError:
        return False


def _linked(status: os.stat_result, stored: Iterable[tuple[Path, Checked]]) -> Checked | None:
    for path, checked in stored:
        try:
            other = os.lstat(path)
        except OSError:
            continue  # collected meanwhile
        if os.path.samestat(other, status) and seal_of(status) == checked.seal:
            return checked
    return None


def rename_in(source: Path, target: Path) -> None:
    """Renames; the folder is made when it turns out to be missing, which is seldom. Raises OSError."""
    try:
        os.rename(source, target)
    except FileNotFoundError:
        target.parent.mkdir(parents=True, exist_ok=True)
        os.rename(source, target)


def link_in(source: Path, target: Path) -> None:
    """As `rename_in`, of what may be a hard link of `target` already: a rename does nothing then. Raises OSError."""
    rename_in(source, target)
    source.unlink(missing_ok=True)


def move_in(source: Path, target: Path, identity: tuple[int, int]) -> None:
    """Renames a checked file to its final name; raises InvalidRequestError if it was swapped meanwhile."""
    hit("store.move_in.rename.before")
    try:
        rename_in(source, target)
    except FileNotFoundError:
        raise InvalidRequestError(f"inbox file {source} was taken away during the call") from None
    hit("store.move_in.rename.after")
    status = os.lstat(target)
    if (status.st_dev, status.st_ino) != identity:
        os.unlink(target)
        raise InvalidRequestError(f"inbox file {source} was replaced during the call")


def verify(path: Path, seal: Seal, crc: int, *, deep: bool) -> bool:
    """Whether a stored file is as it was; `deep`, or a changed time, makes it read every byte."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        now = seal_of(os.fstat(fd))
        if now.size_bytes != seal.size_bytes:
            return False
        return (now == seal and not deep) or checksum(fd) == crc
    except OSError:
        return False
    finally:
        os.close(fd)


def read_cached(fd: int, into: memoryview, offset: int) -> bool:
    """Fills `into` if all of it is in the page cache; else reading would wait for the disk: do it in a thread."""
    try:
        return os.preadv(fd, [into], offset, os.RWF_NOWAIT) == len(into)
    except OSError as error:
        if error.errno not in (errno.EAGAIN, errno.EOPNOTSUPP):
            raise
        return False


def read_pieces(path: Path, piece_bytes: int) -> Iterator[bytes]:
    """The bytes of a stored file."""
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    offset = 0
    try:
        while piece := os.pread(fd, piece_bytes, offset):
            offset += len(piece)
            yield piece
    finally:
        os.close(fd)


def unlink_all(paths: Iterable[Path]) -> None:
    for path in paths:
        hit("store.remove.unlink.before")
        path.unlink(missing_ok=True)
        hit("store.remove.unlink.after")


class Incoming:
    """A file that is being received: bytes in order into a temporary file, checked at the end."""

    def __init__(self, path: Path, fd: int | None = None) -> None:
        """`fd`: of the file, if it is there already, empty and open for writing."""
        self.path = path
        self._crc = 0
        self._size = 0
        self._fd = create(path) if fd is None else fd
        self.reserved = self.linked = False

    @classmethod
    def resumed(cls, path: Path) -> Incoming:
        """Goes on with what was suspended; reads it for the checksum."""
        incoming = cls.__new__(cls)
        incoming.path = path
        incoming._fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC)
        incoming._crc = checksum(incoming._fd)
        incoming._size = os.fstat(incoming._fd).st_size
        incoming.reserved = incoming.linked = False
        return incoming

    @classmethod
    def link_of(cls, source: Path, path: Path, checked: Checked) -> Incoming:
        """All its bytes are here: `path` becomes a further name of the stored file `source`.

        Raises OSError, IntegrityError when `source` is not as it was stored.
        """
        incoming = cls.__new__(cls)
        incoming.path, incoming._fd = path, -1
        incoming._crc, incoming._size = checked.crc32c, checked.seal.size_bytes
        incoming.reserved, incoming.linked = False, True
        os.link(source, path)
        try:
            incoming._fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
            if seal_of(os.fstat(incoming._fd)) != checked.seal:
                raise IntegrityError(f"{source}: has been changed")
        except (OSError, IntegrityError):
            incoming.abort()
            raise
        return incoming

    def reserve(self, size_bytes: int) -> None:
        """Disk space for a large file that is going to have so many bytes: `reserved`, where that is possible.

        Raises OSError when there is none.
        """
        if size_bytes >= RESERVE_BYTES_MIN:
            self.reserved = reserve(self._fd, size_bytes)

    def suspend(self, path: Path) -> None:
        """Closes, and puts what has come so far there."""
        if self.reserved:
            os.ftruncate(self._fd, self._size)  # gives back what is behind the end
        os.close(self._fd)
        self._fd = -1
        self.path.rename(path)

    @property
    def size_bytes(self) -> int:
        return self._size

    def write(self, pieces: Sequence[Piece]) -> None:
        """Appends all pieces, with one call of the system if it takes them."""
        hit("store.incoming.write.before")
        size = sum(map(len, pieces))
        written = os.writev(self._fd, pieces)
        if written < size:
            rest = memoryview(b"".join(pieces))[written:]
            while rest:
                rest = rest[os.write(self._fd, rest) :]
        hit("store.incoming.write.after")
        for piece in pieces:
            self._crc = crc32c(piece, self._crc)
        self._size += size

    def finish(self, size_bytes: int, crc: int) -> Seal:
        """Closes; raises IntegrityError, and removes the file, unless length and checksum are as announced."""
        seal = seal_of(os.fstat(self._fd))
        if (self._size, self._crc) != (size_bytes, crc):
            self.abort()
            raise IntegrityError(
                f"received {self._size} bytes with crc32c {self._crc:08x}, announced {size_bytes} with {crc:08x}"
            )
        os.close(self._fd)
        self._fd = -1
        return seal

    def abort(self) -> None:
        """Removes what was written; harmless after `finish` has failed."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
        self.path.unlink(missing_ok=True)


def zip_references(path: Path) -> tuple[str, ...]:
    """Names of the data files that a snapshot zip lists in its `metadata` entry; none for an empty RocksDB.

    The entry is a line with a version ("v1" or "v2") and a JSON object, as Spark's RocksDBCheckpointMetadata writes it.
    Raises InvalidRequestError for anything else.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            if archive.getinfo("metadata").file_size > _METADATA_BYTES_MAX:
                raise InvalidRequestError(f"{path.name}: the metadata entry is larger than {_METADATA_BYTES_MAX} bytes")
            version, _, text = archive.read("metadata").decode().partition("\n")
        return _references(version.strip(), json.loads(text))
    except (zipfile.BadZipFile, KeyError, TypeError, AttributeError, ValueError, zipfile.LargeZipFile) as error:
        raise InvalidRequestError(f"{path.name} is not a snapshot of Spark's RocksDB state store: {error}") from error


def _references(version: str, metadata: dict[str, Any]) -> tuple[str, ...]:
    if version not in ("v1", "v2"):
        raise ValueError(f"metadata version {version!r}, expected v1 or v2")
    ssts = [f"SSTs/{file['dfsSstFileName']}" for file in metadata.get("sstFiles") or ()]
    logs = [f"logs/{file['dfsLogFileName']}" for file in metadata.get("logFiles") or ()]
    return tuple(dict.fromkeys([*ssts, *logs]))
