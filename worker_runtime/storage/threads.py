"""Threads for blocking work: a small pool for what somebody waits for and one for data files.

The way to a thread and back costs more than a small file in the page cache. So what touches only a few bytes is done at
once, on the event loop, as long as the disk is quick.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from rhino.ids import Lane

T = TypeVar("T")
SMALL_BYTES = 128 * 1024  # work on so many bytes may be done at once
SLOW_S = 0.002  # at once it should take a tenth of this
SLOW_FOR_S = 0.5  # after slow work, threads do all of it for so long
_THREADS = {Lane.COMMIT: 4, Lane.BULK: 3}


async def run_in(pool: ThreadPoolExecutor, work: Callable[[], T]) -> T:
    """Blocking work. A cancelled caller waits until the thread has let go of its files."""
    future = asyncio.get_running_loop().run_in_executor(pool, work)
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        while not future.done():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait({future})
        raise


class Threads:
    """One pool per lane. `clock`: monotonic seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._slow_until = float("-inf")
        self._pools = {
            lane: ThreadPoolExecutor(number, thread_name_prefix=f"store-{lane.value}")
            for lane, number in _THREADS.items()
        }

    def close(self) -> None:
        """Waits for what was begun and submitted."""
        for pool in self._pools.values():
            pool.shutdown()

    async def run(self, lane: Lane, work: Callable[[], T]) -> T:
        """Blocking work in the lane's pool."""
        return await run_in(self._pools[lane], work)

    async def run_small(self, lane: Lane, work: Callable[[], T], size_bytes: int) -> T:
        """At once when it is little and the disk is quick, else as `run`."""
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
        """Some time soon; nobody hears of its end."""
        self._pools[lane].submit(work)
