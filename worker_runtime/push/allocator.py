"""Tells glibc to keep freed buffers.

Chunk buffers are allocated and freed all the time, and mapping fresh pages for each one is expensive
(docs/benchmarks/results.md).
"""

from __future__ import annotations

import ctypes

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # malloc.h
KEEP_BYTES = 64 * 1024 * 1024  # freed memory at the top of the heap that is kept before it returns to the system
MMAP_BYTES = 32 * 1024 * 1024  # the most that glibc allows; larger requests are mapped, and unmapped when freed


def keep_freed_memory() -> bool:
    """Applies the settings to the whole process.

    Returns False if the C library has no mallopt (musl, macOS): the process is only slower then.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    return bool(mallopt(_M_MMAP_THRESHOLD, MMAP_BYTES)) and bool(mallopt(_M_TRIM_THRESHOLD, KEEP_BYTES))
