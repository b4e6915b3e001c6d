"""Files in the page cache or on the disk only, told apart by the kernel."""

from __future__ import annotations

import ctypes
import mmap
import os
from pathlib import Path

import pytest

from benchmarks.page_cache import bring_in, evict

PAGES = 256


def resident(path: Path) -> int:
    """Pages of the file that are in the page cache."""
    libc = ctypes.CDLL(None, use_errno=True)
    size = path.stat().st_size
    with path.open("r+b") as file, mmap.mmap(file.fileno(), size) as mapped:
        view = (ctypes.c_char * size).from_buffer(mapped)
        flags = (ctypes.c_ubyte * (size // mmap.PAGESIZE))()
        assert libc.mincore(ctypes.c_void_p(ctypes.addressof(view)), ctypes.c_size_t(size), flags) == 0, os.strerror(
            ctypes.get_errno()
        )
        del view
        return sum(flag & 1 for flag in flags)


def test_files_are_brought_in_and_evicted(tmp_path: Path) -> None:
    path, gone = tmp_path / "1.sst", tmp_path / "gone.sst"
    path.write_bytes(os.urandom(PAGES * mmap.PAGESIZE))
    evict([gone, path])
    if resident(path) == PAGES:
        pytest.skip("a file system in memory, which has no other place for it")
    assert resident(path) == 0
    bring_in([gone, path])
    assert resident(path) == PAGES
