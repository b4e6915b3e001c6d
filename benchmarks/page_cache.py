"""Whether files are in the page cache: on a node with memory to spare they are, but the kernel may have taken it back.

Old copies without readers are the first to go. A later load then reads from the disk, as often as it looks for a key.
So two figures can be compared only if both are known to come from the same place.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import psutil

_CHUNK = 4 << 20


def bring_in(files: Iterable[Path]) -> None:
    """Returns when all of them have been read. Vanished files are left out."""
    buffer = bytearray(_CHUNK)
    for path in files:
        try:
            with path.open("rb", buffering=0) as file:
                while file.readinto(buffer):
                    pass
        except FileNotFoundError:
            continue


def evict(files: Iterable[Path]) -> None:
    """Drops the files from the page cache: the next reader reads the disk. Vanished files are skipped."""
    for path in files:
        try:
            with path.open("rb", buffering=0) as file:
                os.fdatasync(file)  # dirty pages stay
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        except FileNotFoundError:
            continue


def disk_reads() -> int:
    """Reads of all disks of this machine since its start."""
    counters = psutil.disk_io_counters()
    return counters.read_count if counters is not None else 0
