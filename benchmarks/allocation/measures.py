"""The work of each part, with and without its measure.

All figures are processor time, which other load disturbs least.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from worker_runtime.storage.allocation.fallocate import reserve
from worker_runtime.storage.allocation.preallocated import PreallocatedFiles
from worker_runtime.storage.allocation.spread_folders import spread_subfolders
from worker_runtime.storage.files import create

SMALL_BYTES = 2048
KEPT = 256  # a store keeps so many small files before retention deletes the oldest
PIECE_BYTES = 512 * 1024  # as push streams write
LARGE_BYTES = 64 * 1024 * 1024
MEMORY_CODE = """
import sys, time
from worker_runtime.push.allocator import keep_freed_memory
if sys.argv[1] == "yes":
    keep_freed_memory()
started = time.process_time()
for _ in range(int(sys.argv[2])):
    bytes(1024 * 1024).translate(None)
print(time.process_time() - started)
"""
Take = Callable[[], tuple[Path, int]]


def create_files(folder: Path, count: int, *, on: bool) -> float:
    """Microseconds per small file of the waiting thread: create, write, rename, delete an old file."""
    tmp = folder / "tmp"
    tmp.mkdir()
    if not on:
        return _caller_us(folder, count, lambda: _direct(tmp))
    with _preallocated(tmp, spread=True) as take:
        return _caller_us(folder, count, take)


def spread_folders(folder: Path, count: int, *, on: bool) -> float:
    """Microseconds per small file of the whole process, with preallocated files in both cases."""
    tmp = folder / "tmp"
    tmp.mkdir()
    with _preallocated(tmp, spread=on) as take:
        started = time.process_time()
        _churn(folder, count, take)
        return (time.process_time() - started) / count * 1e6


def reserve_space(folder: Path, count: int, *, on: bool) -> float:
    """Milliseconds per large file."""
    piece = memoryview(os.urandom(PIECE_BYTES))
    spent = 0.0
    for number in range(count):
        path = folder / str(number)
        fd = create(path)
        started = time.thread_time()
        if on:
            reserve(fd, LARGE_BYTES)
        for _ in range(LARGE_BYTES // PIECE_BYTES):
            os.write(fd, piece)
        spent += time.thread_time() - started
        os.close(fd)
        path.unlink()
    return spent / count * 1e3


def keep_memory(folder: Path, count: int, *, on: bool) -> float:
    """Microseconds per buffer of a megabyte that is allocated, filled and freed, in a process of its own."""
    command = [sys.executable, "-c", MEMORY_CODE, "yes" if on else "no", str(count)]
    ended = subprocess.run(command, check=True, capture_output=True, text=True)
    return float(ended.stdout) / count * 1e6


def _direct(tmp: Path) -> tuple[Path, int]:
    path = tmp / uuid.uuid4().hex
    return path, create(path)


@contextmanager
def _preallocated(tmp: Path, *, spread: bool) -> Iterator[Take]:
    if spread:
        spread_subfolders(tmp)
    with ThreadPoolExecutor(1) as pool:
        files = PreallocatedFiles(tmp, lambda work: (pool.submit(work), None)[1])

        def take() -> tuple[Path, int]:
            return files.take() or _direct(tmp)

        yield take
        files.close()


def _caller_us(folder: Path, count: int, take: Take) -> float:
    started = time.thread_time()
    _churn(folder, count, take)
    return (time.thread_time() - started) / count * 1e6


def _churn(folder: Path, count: int, take: Take) -> None:
    """Files come and go like changelogs of a running query."""
    stored, data, kept = folder / "store", bytes(SMALL_BYTES), deque[Path]()
    stored.mkdir()
    for number in range(count):
        path, fd = take()
        os.write(fd, data)
        os.close(fd)
        final = stored / f"{number}.changelog"
        path.rename(final)
        kept.append(final)
        if len(kept) > KEPT:
            kept.popleft().unlink()
