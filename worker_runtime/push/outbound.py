"""A file being sent: its bytes are read from disk and checked before they go over the wire.

If the bytes do not match the file's entry, the last part is not sent. So no receiver takes the file for complete.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from crc32c import crc32c

from rhino_core.ids import FileEntry
from worker_runtime.push.connection import ThreadSender
from worker_runtime.push.core.sender import Part
from worker_runtime.storage.disk.files import READ_BYTES, read_cached
from worker_runtime.storage.disk.threads import open_stored


class Damaged(Exception):
    """The stored bytes do not match the entry."""


class CheckedFile:
    """An open file, read in order. All methods may raise Damaged and OSError."""

    def __init__(self, entry: FileEntry, fd: int) -> None:
        self._entry = entry
        self._fd = fd
        self._crc = 0  # checksum of the first `checked_bytes`
        self.checked_bytes = 0

    def close(self) -> None:
        os.close(self._fd)

    def check(self, size: int, before: int) -> None:
        """Reads up to `size` of the bytes before the offset `before`. They are not sent again. Blocks."""
        end = min(self.checked_bytes + size, before)
        buffer = memoryview(bytearray(min(size, READ_BYTES)))
        while self.checked_bytes < end:
            self._read(buffer[: end - self.checked_bytes])

    def read(self, size: int) -> memoryview:
        """The next `size` bytes. Blocks."""
        return self._read(memoryview(bytearray(size)))

    def read_cached(self, size: int) -> memoryview | None:
        """Like `read` if the bytes are in the page cache, else None."""
        data = memoryview(bytearray(size))
        return self._count(data) if read_cached(self._fd, data, self.checked_bytes) else None

    def pieces(self, size: int, buffer: memoryview) -> Iterator[memoryview]:
        """The next `size` bytes, read into the buffer piece by piece; at least one piece. Blocks."""
        while True:
            piece = self._read(buffer[:size])
            size -= len(piece)
            yield piece
            if not size:
                return

    def _read(self, into: memoryview) -> memoryview:
        if os.preadv(self._fd, [into], self.checked_bytes) != len(into):
            raise Damaged
        return self._count(into)

    def _count(self, data: memoryview) -> memoryview:
        self._crc = crc32c(data, self._crc)
        self.checked_bytes += len(data)
        if self.checked_bytes == self._entry.size_bytes and self._crc != self._entry.crc32c:
            raise Damaged
        return data


def cached_bytes(path: Path, entry: FileEntry) -> memoryview | None:
    """All bytes of a small file if it is in the page cache, else None. Raises Damaged, OSError."""
    file = CheckedFile(entry, open_stored(path))
    try:
        return file.read_cached(entry.size_bytes)
    finally:
        file.close()


def send_part(to: ThreadSender, file: CheckedFile, part: Part, buffer: memoryview) -> None:
    """Sends the part in one frame, through the buffer. Call it in a thread. Raises Damaged, OSError."""
    head = part.head
    for data in file.pieces(part.size, buffer):
        to.send(head, data)
        head = b""
