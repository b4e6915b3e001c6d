"""Thread pools for blocking work on the disk.

There is a small pool for work with a waiting caller, and one for data files.

Switching to a thread and back costs more than handling a small file in the page cache. So work on a few bytes runs on
the event loop, as long as the disk is fast.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from rhino_core.ids import Lane

log = logging.getLogger(__name__)
T = TypeVar("T")
SMALL_BYTES = 128 * 1024  # work on up to so many bytes may run on the event loop
SLOW_S = 0.002  # work on the event loop that takes longer counts as slow; normal is about a tenth
SLOW_FOR_S = 0.5  # how long threads do all the work after slow work
LARGE_BYTES = 16 * 1024 * 1024  # larger work does not use the threads that small commits need
_THREADS = {Lane.COMMIT: 4, Lane.BULK: 3}
_LARGE_THREADS = 2


async def run_in(pool: ThreadPoolExecutor, work: Callable[[], T]) -> T:
    """Runs blocking work in a thread.

    A cancelled caller waits until the thread no longer uses its files, and the work's error is dropped.
    """
    future = asyncio.get_running_loop().run_in_executor(pool, work)
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        while not future.done():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait({future})
        if not future.cancelled():
            future.exception()  # mark it as retrieved, or the loop would log it
        raise


def open_stored(path: Path) -> int:
    """A descriptor of the file. Raises OSError."""
    return os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)


class Threads:
    """One pool per lane, and one for large files of the commit lane. `clock`: monotonic seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._slow_until = float("-inf")
        self._pools = {
            lane: ThreadPoolExecutor(number, thread_name_prefix=f"store-{lane.value}")
            for lane, number in _THREADS.items()
        }
        self._large = ThreadPoolExecutor(_LARGE_THREADS, thread_name_prefix="store-large")

    def close(self) -> None:
        """Waits for all started or submitted work."""
        for pool in (*self._pools.values(), self._large):
            pool.shutdown()

    async def run(self, lane: Lane, work: Callable[[], T]) -> T:
        """Runs blocking work in the lane's pool."""
        return await run_in(self._pools[lane], work)

    async def open(self, lane: Lane, path: Path) -> int:
        """Like `open_stored`, in the lane's pool. A cancelled caller leaves no descriptor open."""
        opened: list[int] = []
        try:
            await self.run(lane, lambda: opened.append(open_stored(path)))
        except asyncio.CancelledError:
            for fd in opened:
                os.close(fd)
            raise
        return opened[0]

    async def run_small(self, lane: Lane, work: Callable[[], T], size_bytes: int) -> T:
        """Runs small work at once if the disk is fast, else like `run`.

        Large work has its own pool, so it delays no other commit.
        """
        if lane is Lane.COMMIT and size_bytes > LARGE_BYTES:
            return await run_in(self._large, work)
        started = self._clock()
        if size_bytes > SMALL_BYTES or started < self._slow_until:
            return await self.run(lane, work)
        try:
            return work()
        finally:
            ended = self._clock()
            if ended - started > SLOW_S:
                self._slow_until = ended + SLOW_FOR_S

    def submit(self, lane: Lane, work: Callable[[], object]) -> None:
        """Runs work soon. Nobody waits for its end, so an error is logged."""
        self._pools[lane].submit(_logged, work)


def _logged(work: Callable[[], object]) -> None:
    try:
        work()
    except Exception:
        log.exception("background work of the store failed")
