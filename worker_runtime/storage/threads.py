"""Threads for blocking work: a small pool for what somebody waits for and one for data files."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from rhino.ids import Lane

T = TypeVar("T")
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
    """One pool per lane."""

    def __init__(self) -> None:
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

    def submit(self, lane: Lane, work: Callable[[], object]) -> None:
        """Some time soon; nobody hears of its end."""
        self._pools[lane].submit(work)
