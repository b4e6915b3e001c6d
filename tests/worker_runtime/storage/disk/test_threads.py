"""Small work is done at once while the disk is quick, and in threads once it is not."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from rhino_core.ids import Lane
from worker_runtime.storage.disk.threads import LARGE_BYTES, SLOW_FOR_S, SLOW_S, SMALL_BYTES, Threads, open_stored


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


async def test_commits_of_gigabytes_keep_no_other_waiting() -> None:
    threads, done = Threads(), threading.Event()
    large = [asyncio.create_task(threads.run_small(Lane.COMMIT, done.wait, LARGE_BYTES + 1)) for _ in range(8)]
    try:
        async with asyncio.timeout(10):
            here = await threads.run_small(Lane.COMMIT, threading.get_ident, SMALL_BYTES + 1)
        assert here != threading.get_ident()
        assert not any(task.done() for task in large)
    finally:
        done.set()
        await asyncio.gather(*large)
        threads.close()


async def cancelled(call: asyncio.Task[Any], may_go_on: threading.Event) -> None:
    """While its thread works."""
    call.cancel()
    await asyncio.sleep(0)
    may_go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await call


async def test_a_caller_that_is_cancelled_while_a_file_is_opened_leaves_no_descriptor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The files of a link that breaks are deleted some time, and would take space for ever."""
    path, threads, may_go_on, opening = tmp_path / "file", Threads(), threading.Event(), threading.Event()
    path.touch()

    def slow(path: Path) -> int:
        opening.set()
        may_go_on.wait()
        return open_stored(path)

    monkeypatch.setattr("worker_runtime.storage.disk.threads.open_stored", slow)
    call = asyncio.create_task(threads.open(Lane.BULK, path))
    await asyncio.to_thread(opening.wait)
    await cancelled(call, may_go_on)
    assert str(path) not in [os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd") if fd_lives(fd)]
    threads.close()


def fd_lives(fd: str) -> bool:
    return os.path.lexists(f"/proc/self/fd/{fd}")


async def test_errors_of_work_that_nobody_waits_for_any_more_are_heard(caplog: pytest.LogCaptureFixture) -> None:
    threads, may_go_on, working = Threads(), threading.Event(), threading.Event()

    def fail() -> None:
        working.set()
        may_go_on.wait()
        raise BrokenPipeError

    call = asyncio.create_task(threads.run(Lane.BULK, fail))
    await asyncio.to_thread(working.wait)
    await cancelled(call, may_go_on)
    threads.close()  # its thread has let go as well
    del call
    await asyncio.sleep(0)  # and the loop
    gc.collect()
    assert "never retrieved" not in caplog.text


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


def test_submitted_work_that_fails_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    threads = Threads()

    def fail() -> None:
        raise OSError("the disk is gone")

    threads.submit(Lane.BULK, fail)
    threads.close()
    assert "the disk is gone" in caplog.text
