"""Standbys on one checkpoint: who takes over a query when, and who does not."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest

from query_evolution.replace import supervise as module
from query_evolution.replace.core import Phase
from query_evolution.replace.folder import RestartFolder
from query_evolution.replace.rehearsal import OtherOperatorsError
from query_evolution.replace.supervise import Outcome, Supervised, Trial
from rhino_core.errors import ConflictError, PreconditionError
from spark_connector import run_locks
from spark_connector.run_locks import RIGHT
from tests.query_evolution.replace.fakes import TOO_MANY, FakeDriver, locks, supervised, wait_for
from tests.query_evolution.support.folder import LOCKER

IS_LOCKED = run_locks.is_locked


def dies(driver: FakeDriver) -> None:
    """Its process ends: the kernel takes its locks back."""
    driver.runs = False
    for lock in [lock for lock, owner in locks.items() if owner is driver]:
        del locks[lock]


def test_a_standby_runs_the_query_when_its_driver_has_died(checkpoint: Path) -> None:
    _, driver = supervised(checkpoint)
    wait_for(lambda: driver.runs)
    waiting, spare = supervised(checkpoint, standby=True)
    wait_for(lambda: waiting.phase is Phase.BLOCKED)
    assert waiting.wait(0.1) is None
    assert (spare.runs, RestartFolder(checkpoint).read()) == (False, ())
    dies(driver)
    wait_for(lambda: spare.runs)
    wait_for(lambda: waiting.phase is Phase.RUNNING)
    waiting.stop()
    assert waiting.wait() is Outcome.STOPPED


def test_a_standby_that_cannot_rehearse_waits(
    checkpoint: Path,
    former: tuple[Supervised, FakeDriver],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Its sources have no rows, for example. It says so, and does not try again: a dead driver must be noticed."""
    tried = []

    def rehearse(*rows: object, **options: object) -> None:
        tried.append(rows)
        raise PreconditionError("no batch was planned within 60 s")

    monkeypatch.setattr(module, "rehearse", rehearse)
    waiting, spare = supervised(checkpoint, standby=True)
    wait_for(lambda: "waits without a rehearsal" in caplog.text)
    assert waiting.wait(0.1) is None
    former[0].stop()
    wait_for(lambda: waiting.phase is Phase.RUNNING)
    assert (spare.runs, waiting.rehearsed, len(tried)) == (True, False, 1)
    waiting.stop()


def test_a_standby_with_other_operators_ends_and_says_so(
    checkpoint: Path,
    former: tuple[Supervised, FakeDriver],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def rehearse(*rows: object, **options: object) -> None:
        raise OtherOperatorsError("it has 2, and the checkpoint 1")

    monkeypatch.setattr(module, "rehearse", rehearse)
    waiting, _ = supervised(checkpoint, standby=True)
    with pytest.raises(PreconditionError, match="it has 2"):
        waiting.wait(30)
    assert "the supervisor ends" in caplog.text
    assert former[1].runs


def test_a_standby_whose_code_was_replaced_ends(checkpoint: Path, former: tuple[Supervised, FakeDriver]) -> None:
    waiting, spare = supervised(checkpoint, standby=True)
    wait_for(lambda: waiting.phase is Phase.BLOCKED)
    newer, _ = supervised(checkpoint)
    wait_for(lambda: newer.phase is Phase.RUNNING)
    with pytest.raises(ConflictError, match="its code was replaced since this standby began"):
        waiting.wait(30)
    assert not spare.runs
    newer.stop()


def test_a_standby_outlasts_errors_of_files(checkpoint: Path, former: tuple[Supervised, FakeDriver]) -> None:
    waiting, spare = supervised(checkpoint, standby=True)
    wait_for(lambda: waiting.phase is Phase.BLOCKED)
    take, failed = spare.take, []

    def broken(lock: Path) -> bool:
        failed.append(lock)
        if len(failed) < 5:
            raise TOO_MANY
        return take(lock)

    spare.take = broken  # type: ignore[method-assign]
    former[0].stop()
    wait_for(lambda: spare.runs)
    waiting.stop()


def gives_signs(checkpoint: Path) -> Path:
    """The owner of the right gives one, and no further one."""
    path = RestartFolder(checkpoint).lock(RIGHT)
    path.write_text('{"pid": 7, "user": "somebody", "host": "far", "sign_s": 2}')
    return path


def test_a_standby_takes_over_from_a_driver_that_gives_no_sign(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "SILENT_MIN_S", 0.0)
    hangs, driver = supervised(checkpoint)
    wait_for(lambda: hangs.phase is Phase.RUNNING)
    path = gives_signs(checkpoint)
    waiting, spare = supervised(checkpoint, Trial(silent_s=0.5), standby=True)
    for _ in range(5):
        os.utime(path)
        assert waiting.wait(0.2) is None
        assert not spare.runs, "its driver lives"
    wait_for(lambda: waiting.phase is Phase.RUNNING)
    assert "process 7 of user somebody on far" in str([vars(one) for one in caplog.records])
    wait_for(lambda: not driver.runs)
    assert hangs.wait() is Outcome.STOPPED
    waiting.stop()


@pytest.fixture
def owner(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Path, subprocess.Popen[str]]]:
    """The file of the right to run, and another process that has its lock in the kernel."""
    monkeypatch.setattr(module, "SILENT_MIN_S", 0.0)
    monkeypatch.setattr(run_locks, "is_locked", IS_LOCKED)
    path = RestartFolder(checkpoint).lock(RIGHT)
    path.parent.mkdir()
    path.touch()
    other = subprocess.Popen([sys.executable, str(LOCKER), str(path)], stdout=subprocess.PIPE, text=True)
    try:
        assert other.stdout is not None
        assert other.stdout.readline() == "locked\n"
        yield path, other
    finally:
        other.kill()
        other.wait()


def test_a_driver_that_hangs_on_this_machine_is_killed(
    checkpoint: Path, owner: tuple[Path, subprocess.Popen[str]]
) -> None:
    """The process has the lock, in the kernel's words, and no other one."""
    path, other = owner
    for pid, host in ((other.pid + 1, socket.gethostname()), (other.pid, "far")):
        path.write_text(json.dumps({"pid": pid, "host": host, "sign_s": 2}))
        assert RestartFolder(checkpoint).owner_here() is None
    path.write_text(json.dumps({"pid": other.pid, "host": socket.gethostname(), "sign_s": 2}))
    assert RestartFolder(checkpoint).owner_here() == other.pid
    os.kill(other.pid, signal.SIGSTOP)
    locks[path] = cast("FakeDriver", object())
    waiting, spare = supervised(checkpoint, Trial(silent_s=0.2), standby=True)
    assert other.wait(60) == -signal.SIGKILL
    assert not spare.runs
    del locks[path]
    wait_for(lambda: spare.runs)
    waiting.stop()


def test_a_standby_that_has_just_taken_over_is_not_killed(
    checkpoint: Path, owner: tuple[Path, subprocess.Popen[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two standbys of one machine find the same silence."""
    path, other = owner
    found: list[int | None] = []
    owner_here = RestartFolder.owner_here

    def later(folder: RestartFolder) -> int | None:
        os.utime(path)  # the other one has the right since the silence was judged, and has written its file
        found.append(owner_here(folder))
        return found[-1]

    monkeypatch.setattr(RestartFolder, "owner_here", later)
    path.write_text(json.dumps({"pid": other.pid, "host": socket.gethostname(), "sign_s": 2}))
    locks[path] = cast("FakeDriver", object())
    waiting, spare = supervised(checkpoint, Trial(silent_s=0.1), standby=True)
    wait_for(lambda: len(found) > 2)
    waiting.stop()
    assert found[0] == other.pid
    assert (other.poll(), spare.runs) == (None, False)


def test_nobody_takes_over_from_an_owner_that_never_gives_signs(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A command that decides about a stopped query."""
    monkeypatch.setattr(module, "SILENT_MIN_S", 0.0)
    running, driver = supervised(checkpoint)
    wait_for(lambda: running.phase is Phase.RUNNING)
    waiting, spare = supervised(checkpoint, Trial(silent_s=0.1), standby=True)
    assert waiting.wait(0.5) is None
    assert driver.runs
    assert not spare.runs
    waiting.stop()
    running.stop()
