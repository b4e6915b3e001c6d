"""The number of writes that a journal has acknowledged. A journal with fewer writes than this has lost some."""

from __future__ import annotations

import os
import struct
import zlib
from pathlib import Path

_LAYOUT = struct.Struct(">QI")  # the number, and the CRC-32 of its eight bytes


class Acknowledged:
    """A counter in a small file beside the journal, updated in place after each write of the journal.

    When `note` returns, the operating system has the bytes. The counter therefore survives the end of the process.
    After a power loss it may be too small, but never too large.
    """

    def __init__(self, path: Path) -> None:
        """Creates the file if necessary. Raises OSError if that fails."""
        self.path = path
        new = not path.exists()
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        if new:
            self.record(0)
            os.fsync(self._file)

    def record(self, number: int) -> None:
        text = struct.pack(">Q", number)
        os.pwrite(self._file, _LAYOUT.pack(number, zlib.crc32(text)), 0)

    def close(self) -> None:
        os.close(self._file)


def acknowledged(path: Path) -> int | None:
    """Returns the number. 0: no number is known, because somebody has deleted the file. None: the file is damaged."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return 0
    if not any(data):
        return 0  # created just before a power loss
    if len(data) != _LAYOUT.size:
        return None
    number, crc = _LAYOUT.unpack(data)
    return int(number) if zlib.crc32(data[:8]) == crc else None
