"""Tells glibc to keep freed buffers: chunks come and go, and fresh pages for each cost a third of the time."""

from __future__ import annotations

import ctypes

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # malloc.h
KEEP_BYTES = 64 * 1024 * 1024  # of freed memory at the top of the heap before it goes back to the system
MMAP_BYTES = 32 * 1024 * 1024  # the most that glibc allows; larger requests are mapped, and unmapped when freed


def keep_freed_memory() -> bool:
    """For the whole process; false where the C library has no mallopt (musl, macOS): only slower then."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    return bool(mallopt(_M_MMAP_THRESHOLD, MMAP_BYTES)) and bool(mallopt(_M_TRIM_THRESHOLD, KEEP_BYTES))
