"""Files on disk: how they are created, checked, moved and read. Everything here blocks: call it in threads.

A new file is completed under a temporary name. Then a rename gives it its final name. So a crash at any moment leaves
complete files, and deletable files in `tmp`. Nothing is synced here: see syncer.py.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from crc32c import crc32c

from rhino_core.errors import (
    IntegrityError,
    InvalidRequestError,
    NoSpaceError,
    RhinoError,
    UnavailableError,
    UnknownError,
)
from rhino_core.failpoints import hit
from rhino_core.folder import FILE_MODE

# Errors of the process or the system, which are not caused by the file.
NOT_THE_FILE = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN, errno.EINTR})
# Bytes per read while checking: they stay in the processor's cache until their checksum is computed.
READ_BYTES = 512 * 1024


@dataclass(frozen=True, slots=True)
class Seal:
    """Size and modification time of a file when it was stored. A later difference shows a change of the file."""

    size_bytes: int
    mtime_ns: int


@dataclass(frozen=True, slots=True)
class Checked:
    """A complete file with its checksum.

    `same_as`: content name of a stored file with the same bytes, or empty. `linked`: this file is a hard link of it, so
    its bytes were not read.
    """

    seal: Seal
    crc32c: int
    same_as: str = ""
    linked: bool = False


def storage_error(error: OSError, doing: str) -> RhinoError:
    """NoSpaceError if the disk is full, UnavailableError if the disk is not the cause, else IntegrityError."""
    if error.errno in NOT_THE_FILE:
        return UnavailableError(f"{doing}: {error.strerror}; try again")
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


def create(path: Path) -> int:
    """Creates a new file, open for writing. Raises OSError."""
    hit("store.incoming.create.before")
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE)
    hit("store.incoming.create.after")
    return fd


def seal_of(status: os.stat_result) -> Seal:
    return Seal(status.st_size, status.st_mtime_ns)


def size_of(path: Path) -> int:
    """The size in bytes; 0 if there is no file: the caller reports this when it opens the file."""
    try:
        return os.lstat(path).st_size
    except OSError:
        return 0


def open_inbox_file(path: Path, device: int) -> int:
    """Opens a client's file. Never follows a link; accepts only a regular file on the store's own file system.

    Raises UnknownError, InvalidRequestError, OSError.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        raise UnknownError(f"inbox file {path} does not exist") from None
    except OSError as error:
        if error.errno in NOT_THE_FILE:
            raise
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

    `stored`: files of the same size, each with the result for a hard link of it. A hard link is not read. A copy is
    read and compared.
    """
    fd = open_inbox_file(path, device)
    try:
        known = _linked(os.fstat(fd), stored)
        crc = checksum(fd) if known is None else known.crc32c
        status = os.fstat(fd)
        if status.st_mode & 0o077 and status.st_uid == os.geteuid():
            os.fchmod(fd, FILE_MODE)
        checked = known or Checked(seal_of(status), crc, _copied(fd, crc, stored))
    finally:
        os.close(fd)
    return checked, (status.st_dev, status.st_ino)


def _copied(fd: int, crc: int, stored: Iterable[tuple[Path, Checked]]) -> str:
    """`same_as` of the stored file with exactly the same bytes, or ""."""
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
    """Whether both paths exist and are hard links of the same file."""
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
    """Renames the file. Creates the folder only if it turns out to be missing: this is rare. Raises OSError."""
    try:
        os.rename(source, target)
    except FileNotFoundError:
        target.parent.mkdir(parents=True, exist_ok=True)
        os.rename(source, target)


def link_in(source: Path, target: Path) -> None:
    """Like `rename_in`, even if the source is already a hard link of `target`: a rename then does nothing.

    Raises OSError.
    """
    rename_in(source, target)
    source.unlink(missing_ok=True)


def move_in(source: Path, target: Path, identity: tuple[int, int]) -> None:
    """Renames a checked file to its final name. Raises InvalidRequestError if it was replaced meanwhile."""
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
    """Whether a stored file is unchanged. Reads every byte if `deep`, or if the modification time has changed.

    Raises OSError if this cannot be determined (NOT_THE_FILE).
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in NOT_THE_FILE:
            raise
        return False
    try:
        now = seal_of(os.fstat(fd))
        if now.size_bytes != seal.size_bytes:
            return False
        return (now == seal and not deep) or checksum(fd) == crc
    except OSError as error:
        if error.errno in NOT_THE_FILE:
            raise
        return False
    finally:
        os.close(fd)


def read_cached(fd: int, into: memoryview, offset: int) -> bool:
    """Fill `into` if all of it is in the page cache, and return whether it was filled.

    If not, read in a thread, because reading has to wait for the disk.
    """
    try:
        return os.preadv(fd, [into], offset, os.RWF_NOWAIT) == len(into)
    except OSError as error:
        if error.errno not in (errno.EAGAIN, errno.EOPNOTSUPP):
            raise
        return False


def read_pieces(path: Path, piece_bytes: int) -> Iterator[bytes]:
    """Yields the bytes of a stored file in pieces."""
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    offset = 0
    try:
        while piece := os.pread(fd, piece_bytes, offset):
            offset += len(piece)
            yield piece
    finally:
        os.close(fd)
