"""Inodes and disk space of new files: the one door to what makes ext4 faster.

Preallocated files (preallocated.py), folders far apart on the disk (`spread_subfolders`), and reserved space
(fallocate.py). docs/benchmarks/results.md has the gain of each.
"""

from __future__ import annotations

import array
import contextlib
import fcntl
import os
from collections.abc import Callable
from pathlib import Path

from worker_runtime.storage.disk.allocation.fallocate import reserve
from worker_runtime.storage.disk.allocation.preallocated import PreallocatedFiles
from worker_runtime.storage.disk.files import create
from worker_runtime.storage.disk.layout import Layout

PREALLOCATED_BYTES_MAX = 128 * 1024  # creation is a small part of the work on larger files
RESERVE_BYTES_MIN = 1024 * 1024  # smaller files are written faster than space could be reserved


class FileAllocator:
    """Creates files below the data folder. Safe for any thread; blocks. `later` runs work in a thread soon."""

    def __init__(self, layout: Layout, later: Callable[[Callable[[], None]], None]) -> None:
        """Raises OSError if a folder cannot be opened."""
        for folder in (layout.inbox, layout.preallocated):
            spread_subfolders(folder)
        self._preallocated = PreallocatedFiles(layout.preallocated, later)

    def create(self, size_bytes: int, name: Callable[[], Path]) -> tuple[Path, int]:
        """An empty file for so many bytes, and its descriptor, open for writing.

        `name` gives the path of a file if none is preallocated. Raises OSError.
        """
        made = self._preallocated.take() if size_bytes <= PREALLOCATED_BYTES_MAX else None
        if made is not None:
            return made
        path = name()
        return path, create(path)

    def reserve(self, fd: int, size_bytes: int) -> bool:
        """Reserves disk space for a large file of this final size. Returns whether space was reserved.

        Raises OSError if there is no space.
        """
        return size_bytes >= RESERVE_BYTES_MIN and reserve(fd, size_bytes)

    def close(self) -> None:
        """Deletes preallocated files. Call this before the threads end."""
        self._preallocated.close()


_GET_FLAGS, _SET_FLAGS = 0x80086601, 0x40086602  # FS_IOC_GETFLAGS and FS_IOC_SETFLAGS of linux/fs.h, 64 bits
_TOP_DIRECTORY = 0x00020000  # FS_TOPDIR_FL, `chattr +T`


def spread_subfolders(folder: Path) -> None:
    """Sets the mark. It is only a hint: a file system without support for it refuses, and nothing changes."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        flags = array.array("l", [0])
        with contextlib.suppress(OSError):
            fcntl.ioctl(fd, _GET_FLAGS, flags)
            flags[0] |= _TOP_DIRECTORY
            fcntl.ioctl(fd, _SET_FLAGS, flags)
    finally:
        os.close(fd)
