"""Inbox files that nobody hands over: deleted in the end, and never under somebody's hands."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import gc
import logging
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rhino_core.errors import UnknownError
from worker_runtime.services.local import uncancelled
from worker_runtime.storage.arriving.inbox import ABANDONED_S, Inbox


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "session" / "file"
    path.parent.mkdir()
    path.write_bytes(b"x")
    return path


def test_a_file_that_is_left_alone_goes_whatever_its_own_times_say(tmp_path: Path, file: Path, clock: Clock) -> None:
    inbox = Inbox(tmp_path, clock)
    os.utime(file, (0, 0))
    assert inbox.sweep() == 0
    clock.now += ABANDONED_S - 1
    assert inbox.sweep() == 0
    clock.now += 1
    assert inbox.sweep() == 1
    assert not file.exists()
    assert file.parent.exists()
    assert inbox._observed == {}


def test_a_file_that_changes_stays(tmp_path: Path, file: Path, clock: Clock) -> None:
    inbox = Inbox(tmp_path, clock)
    for size in range(3):
        assert inbox.sweep() == 0
        file.write_bytes(b"x" * size)
        clock.now += ABANDONED_S
    assert inbox.sweep() == 0


def test_a_file_that_a_call_uses_stays_and_its_time_begins_anew(tmp_path: Path, file: Path, clock: Clock) -> None:
    inbox = Inbox(tmp_path, clock)
    inbox.sweep()
    with inbox.using(file):
        clock.now += 2 * ABANDONED_S
        assert inbox.sweep() == 0
    assert inbox.sweep() == 0
    clock.now += ABANDONED_S
    assert inbox.sweep() == 1


def test_a_changelog_that_a_task_has_open_stays(tmp_path: Path, file: Path, clock: Clock) -> None:
    inbox = Inbox(tmp_path, clock)
    with file.open("ab"):
        inbox.sweep()
        clock.now += 2 * ABANDONED_S
        assert inbox.sweep() == 0
    with file.open("rb"):  # RocksDB has the file of which this is a hard link open for reading
        assert inbox.sweep() == 1


@pytest.mark.parametrize("fails", [True, False])
async def test_a_client_that_hangs_up_leaves_no_unheard_error(fails: bool, caplog: pytest.LogCaptureFixture) -> None:
    """Else each of them costs a traceback in the log."""
    caplog.set_level(logging.INFO)
    begun, may_end, ended = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def take_over() -> None:
        begun.set()
        await may_end.wait()
        ended.set()
        if fails:
            raise UnknownError("the file does not exist")

    call = asyncio.create_task(uncancelled(take_over()))
    await begun.wait()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    may_end.set()
    await ended.wait()
    await asyncio.sleep(0)  # its callbacks
    gc.collect()
    assert "never retrieved" not in caplog.text
    assert caplog.text.count("hung up") == fails


def test_a_session_that_ends_meanwhile_ends_no_sweep(
    tmp_path: Path, file: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def leaving(call: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def gone(path: Any = ".") -> Any:
            if isinstance(path, str | Path) and Path(path) == file.parent:
                file.unlink()
                file.parent.rmdir()
            return call(path)

        return gone

    for name in ("scandir", "listdir"):
        monkeypatch.setattr(os, name, leaving(getattr(os, name)))
    assert Inbox(tmp_path, clock).sweep() == 0
    assert not file.parent.exists()


def test_somebody_who_opens_it_at_that_moment_harms_nobody(
    tmp_path: Path, file: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel tells whose lease is in the way by SIGIO, which would end the process."""
    signals: list[int] = []
    handler = signal.signal(signal.SIGIO, lambda number, frame: signals.append(number))
    real = fcntl.fcntl

    def opened_meanwhile(fd: int, command: int, argument: int = 0) -> int:
        done = real(fd, command, argument)
        if (command, argument) == (fcntl.F_SETLEASE, fcntl.F_RDLCK):
            with pytest.raises(BlockingIOError):
                os.open(file, os.O_WRONLY | os.O_NONBLOCK)
        return done

    inbox = Inbox(tmp_path, clock)
    inbox.sweep()
    clock.now += ABANDONED_S
    monkeypatch.setattr(fcntl, "fcntl", opened_meanwhile)
    try:
        assert inbox.sweep() == 1
    finally:
        signal.signal(signal.SIGIO, handler)
    assert signals == []


@pytest.mark.parametrize("code", [errno.EMFILE, errno.ENFILE])
def test_a_process_without_a_free_descriptor_deletes_nothing(
    code: int, tmp_path: Path, file: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    inbox = Inbox(tmp_path, clock)
    inbox.sweep()
    clock.now += ABANDONED_S

    def fail(*_: object) -> int:
        raise OSError(code, os.strerror(code))

    with monkeypatch.context() as patched:
        patched.setattr(os, "open", fail)
        assert inbox.sweep() == 0
    assert inbox.sweep() == 1


def test_where_nothing_is_known_of_writers_nothing_goes(
    tmp_path: Path, file: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(fd: int, command: int, argument: int = 0) -> int:
        raise OSError(22, "no leases here")

    monkeypatch.setattr(fcntl, "fcntl", none)
    inbox = Inbox(tmp_path, clock)
    inbox.sweep()
    clock.now += ABANDONED_S
    assert inbox.sweep() == 0
    assert file.exists()
