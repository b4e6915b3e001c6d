"""One file on its way in from another worker. Everything here blocks: call it in threads."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from crc32c import crc32c

from rhino_core.errors import IntegrityError
from rhino_core.failpoints import hit
from worker_runtime.storage.disk.allocation.allocator import FileAllocator
from worker_runtime.storage.disk.files import Checked, Seal, checksum, seal_of

Piece = bytes | memoryview


class Incoming:
    """A file on its way in: bytes go in order into a temporary file and are verified at the end."""

    def __init__(self, path: Path, fd: int) -> None:
        """`fd`: descriptor of the file, empty and open for writing."""
        self.path = path
        self._crc = 0
        self._size = 0
        self._fd = fd
        self.reserved = self.linked = False

    @classmethod
    def resumed(cls, path: Path) -> Incoming:
        """Continue a suspended file. Reads it for the checksum."""
        incoming = cls(path, os.open(path, os.O_RDWR | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC))
        try:
            incoming._crc = checksum(incoming._fd)
            incoming._size = os.fstat(incoming._fd).st_size
        except OSError:
            os.close(incoming._fd)
            raise
        return incoming

    @classmethod
    def link_of(cls, source: Path, path: Path, checked: Checked) -> Incoming:
        """All bytes are here already: make `path` another name of the stored file `source`.

        Raises OSError, or IntegrityError if `source` has changed since it was stored.
        """
        incoming = cls(path, -1)
        incoming._crc, incoming._size = checked.crc32c, checked.seal.size_bytes
        incoming.linked = True
        os.link(source, path)
        try:
            incoming._fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
            if seal_of(os.fstat(incoming._fd)) != checked.seal:
                raise IntegrityError(f"{source}: has been changed")
        except (OSError, IntegrityError):
            incoming.abort()
            raise
        return incoming

    def reserve(self, allocator: FileAllocator, size_bytes: int) -> None:
        """Reserves disk space for the file's final size. Sets `reserved` if space was reserved.

        Raises OSError if there is no space.
        """
        self.reserved = allocator.reserve(self._fd, size_bytes)

    def release_space(self) -> None:
        """Releases reserved space behind the received bytes."""
        if self.reserved:
            os.ftruncate(self._fd, self._size)
            self.reserved = False

    def suspend(self, path: Path) -> None:
        """Closes the file and moves the received bytes to `path`."""
        self.release_space()
        os.close(self._fd)
        self._fd = -1
        self.path.rename(path)

    @property
    def size_bytes(self) -> int:
        return self._size

    def write(self, pieces: Sequence[Piece]) -> None:
        """Appends all pieces, with one system call if possible."""
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

    def require(self, size_bytes: int, crc: int) -> None:
        """Raises IntegrityError unless the received bytes have this length and checksum."""
        if (self._size, self._crc) != (size_bytes, crc):
            raise IntegrityError(
                f"received {self._size} bytes with crc32c {self._crc:08x}, announced {size_bytes} with {crc:08x}"
            )

    def finish(self, size_bytes: int, crc: int) -> Seal:
        """Closes the file. If length or checksum are not as announced, removes it and raises IntegrityError."""
        seal = seal_of(os.fstat(self._fd))
        try:
            self.require(size_bytes, crc)
        except IntegrityError:
            self.abort()
            raise
        os.close(self._fd)
        self._fd = -1
        return seal

    def abort(self) -> None:
        """Removes the written bytes. Harmless after a failed `finish`."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
        self.path.unlink(missing_ok=True)
