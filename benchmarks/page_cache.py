"""Whether files are in the page cache: on a node with memory to spare they are, but the kernel may have taken it back.

Copies that came in long ago and that nobody reads are the first to go. A load that follows then reads from the disk,
as often as it looks for a key, so without knowing which it was two figures cannot be compared.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import psutil

_CHUNK = 4 << 20


def bring_in(files: Iterable[Path]) -> None:
    """Returns when all of them have been read. Files that vanish meanwhile are left out."""
    buffer = bytearray(_CHUNK)
    for path in files:
        try:
            with path.open("rb", buffering=0) as file:
                while file.readinto(buffer):
                    pass
        except FileNotFoundError:
            continue


def evict(files: Iterable[Path]) -> None:
    """Drops the files from the page cache, so that the next reader reads the disk. Files that vanish are skipped."""
    for path in files:
        try:
            with path.open("rb", buffering=0) as file:
                os.fdatasync(file)  # dirty pages stay
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        except FileNotFoundError:
            continue


def disk_reads() -> int:
    """Reads that all disks of this machine have carried out since it was started."""
    counters = psutil.disk_io_counters()
    return counters.read_count if counters is not None else 0
