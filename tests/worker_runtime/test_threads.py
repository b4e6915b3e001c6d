"""Small work is done at once while the disk is quick, and in threads once it is not."""

from __future__ import annotations

import threading

from rhino.ids import Lane
from worker_runtime.storage.threads import SLOW_FOR_S, SLOW_S, SMALL_BYTES, Threads


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


async def test_little_is_done_at_once_until_it_takes_long() -> None:
    clock = Clock()
    threads = Threads(clock)

    async def at_once(size_bytes: int = SMALL_BYTES, takes_s: float = 0.0) -> bool:
        def work() -> int:
            clock.now += takes_s
            return threading.get_ident()

        return await threads.run_small(Lane.COMMIT, work, size_bytes) == threading.get_ident()

    assert await at_once()
    assert not await at_once(SMALL_BYTES + 1)
    assert await at_once(takes_s=2 * SLOW_S)
    assert not await at_once()
    clock.now += SLOW_FOR_S
    assert await at_once()
    threads.close()


async def test_slow_work_that_fails_counts_as_slow() -> None:
    clock = Clock()
    threads = Threads(clock)

    def fail() -> None:
        clock.now += 1
        raise OSError

    try:
        await threads.run_small(Lane.COMMIT, fail, 1)
    except OSError:
        here = await threads.run_small(Lane.COMMIT, threading.get_ident, 1)
    assert here != threading.get_ident()
    threads.close()
