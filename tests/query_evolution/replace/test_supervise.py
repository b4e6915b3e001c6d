"""Supervisors on one checkpoint, with queries and locks of this process instead of Spark's."""

from __future__ import annotations

import errno
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from query_evolution.replace import supervise as module
from query_evolution.replace.core import Answer, End, Phase
from query_evolution.replace.folder import RestartFolder
from query_evolution.replace.rehearsal import OtherOperatorsError
from query_evolution.replace.supervise import Outcome, Supervised, Trial
from rhino_core.errors import (
    ConflictError,
    IntegrityError,
    InvalidSettingError,
    PreconditionError,
    UnavailableError,
    UnknownError,
)
from spark_connector import run_locks
from spark_connector.facts import create_fact
from spark_connector.run_locks import RIGHT
from tests.query_evolution.support.folder import LOCKER

TRIAL = Trial(batches=2, give_up_s=30, ask_s=30)
IS_LOCKED = run_locks.is_locked
TOO_MANY = OSError(errno.EMFILE, "Too many open files")
locks: dict[Path, FakeDriver] = {}


class FakeDriver:
    """A query that commits `commits` batches when it is started, and plans one more if `hangs`."""

    def __init__(self, checkpoint: Path, *, commits: int = 2, hangs: bool = False, error: str = "") -> None:
        self._checkpoint = checkpoint
        self._commits = commits
        self._hangs = hangs
        self._start_error = error
        self.rows = self.query = None
        self.runs = self.closed = False
        self.stopped = True
        self.in_batch = False  # its function does not return yet: a stop is too slow
        self.parks = True
        self.error: Exception | None = None

    def take(self, lock: Path) -> bool:
        lock.parent.mkdir(parents=True, exist_ok=True)
        if not lock.exists():
            lock.touch()
        return locks.setdefault(lock, self) is self

    def take_over(self, lock: Path, sign: run_locks.Sign) -> bool:
        """The former owner notices it at its next batch, if it wakes."""
        assert (lock.stat().st_ino, lock.stat().st_mtime_ns) == (sign.inode, sign.mtime_ns)
        locks[lock].runs = False
        locks[lock] = self
        return True

    def has(self, lock: Path) -> bool:
        return lock in locks

    def let_go(self, lock: Path) -> None:
        if locks.get(lock) is self:
            assert lock.name != RIGHT or not (self.runs or self.in_batch)
            del locks[lock]

    @property
    def waits(self) -> bool:
        return not self._hangs

    def start(self) -> None:
        assert locks[RestartFolder(self._checkpoint).lock(RIGHT)] is self
        assert not any(other.runs for other in locks.values())
        if self._start_error:
            raise ValueError(self._start_error)
        self.runs, self.stopped, self.closed = True, False, False
        first = max(RestartFolder(self._checkpoint).committed(), default=-1) + 1
        for batch in range(first, first + self._commits + self._hangs):
            (self._checkpoint / "offsets" / str(batch)).touch()
        for batch in range(first, first + self._commits):
            (self._checkpoint / "commits" / str(batch)).touch()

    def stop(self) -> None:
        self.runs = False
        if self.in_batch:
            raise OSError("java.util.concurrent.TimeoutException: the thread failed to stop")
        self.stopped = True

    def close(self) -> None:
        self.closed = True

    def open(self) -> None:
        self.closed = False

    def is_at_boundary(self) -> bool:
        return self.closed and self.parks


@pytest.fixture
def checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    for log in ("offsets", "commits"):
        (tmp_path / log).mkdir()
    (tmp_path / "metadata").write_text('{"id": "job"}')
    (tmp_path / "restarts").mkdir()
    monkeypatch.setattr(module, "TROUBLE_S", 0.01)
    monkeypatch.setattr(module, "rehearse", lambda *rows, **options: None)
    monkeypatch.setattr(run_locks, "is_locked", lambda path: path in locks)
    yield tmp_path
    locks.clear()


def supervised(
    checkpoint: Path, trial: Trial = TRIAL, *, standby: bool = False, **query: Any
) -> tuple[Supervised, FakeDriver]:
    driver: Any = FakeDriver(checkpoint, **query)
    return Supervised(driver, RestartFolder(checkpoint), "update", trial, standby=standby), driver


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


def wait_for(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


@pytest.fixture
def former(checkpoint: Path) -> Iterator[tuple[Supervised, FakeDriver]]:
    running, driver = supervised(checkpoint)
    wait_for(lambda: running.phase is Phase.RUNNING)
    yield running, driver
    running.stop()


def test_a_query_that_nobody_runs_is_started_and_stopped(checkpoint: Path) -> None:
    running, driver = supervised(checkpoint)
    wait_for(lambda: driver.runs)
    assert running.wait(0.01) is None
    running.stop()
    assert (running.wait(), driver.runs, locks) == (Outcome.STOPPED, False, {})


@pytest.mark.parametrize("closed", [False, True], ids=["running", "parking"])
def test_a_query_stopped_by_others_keeps_the_right_until_its_batch_has_ended(checkpoint: Path, closed: bool) -> None:
    """Spark calls it inactive before."""
    running, driver = supervised(checkpoint)
    wait_for(lambda: running.phase is Phase.RUNNING)
    waiting, spare = supervised(checkpoint, standby=True)
    wait_for(lambda: waiting.phase is Phase.BLOCKED)
    driver.parks, driver.in_batch = False, True
    if closed:
        asking, _ = supervised(checkpoint)
        wait_for(lambda: running.phase is Phase.PARKING)
    driver.runs = False
    assert running.wait(0.3) is None
    assert not spare.runs
    driver.in_batch = False
    assert running.wait(30) is Outcome.STOPPED
    if closed:
        asking.stop()
    waiting.stop()


@pytest.mark.parametrize("error", [None, ValueError("a bug")], ids=["stopped by the application", "after an error"])
def test_a_supervisor_that_ends_keeps_the_right_until_the_batch_has_ended(
    checkpoint: Path, error: Exception | None
) -> None:
    running, driver = supervised(checkpoint)
    wait_for(lambda: running.phase is Phase.RUNNING)
    driver.in_batch = True
    if error is None:
        stopping = threading.Thread(target=running.stop)
        stopping.start()
    else:
        driver.runs = False
        Failing(running, Phase.RUNNING, "open_requests", times=1, error=error)
    assert running.wait(0.3) is None
    assert locks
    driver.in_batch = False
    if error is None:
        stopping.join()
        assert running.wait() is Outcome.STOPPED
    else:
        with pytest.raises(ValueError, match="a bug"):
            running.wait(30)
    assert not locks


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


def test_code_that_has_proved_itself_replaces_the_former_one(
    checkpoint: Path, former: tuple[Supervised, FakeDriver]
) -> None:
    new, driver = supervised(checkpoint)
    assert former[0].wait(30) is Outcome.REPLACED
    wait_for(lambda: new.phase is Phase.RUNNING)
    assert (driver.runs, former[1].runs, [*locks]) == (True, False, [RestartFolder(checkpoint).lock(RIGHT)])
    new.stop()


def test_code_that_starts_at_once_with_another_asks_without_a_rehearsal(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one has made no checkpoint yet, so there is nothing to compare with."""

    def rehearse(*rows: object, **options: object) -> None:
        raise UnknownError("no query checkpoint")

    monkeypatch.setattr(module, "rehearse", rehearse)
    first, _ = supervised(checkpoint, standby=True, commits=0)
    wait_for(lambda: first.phase is Phase.RUNNING)
    new, driver = supervised(checkpoint)
    assert first.wait(30) is Outcome.REPLACED
    wait_for(lambda: new.phase is Phase.RUNNING)
    assert driver.runs
    new.stop()


def test_a_trial_waits_for_all_its_batches(checkpoint: Path, former: tuple[Supervised, FakeDriver]) -> None:
    """Not longer than it may, if there are rows. A query without rows has time."""
    new, driver = supervised(checkpoint, Trial(batches=5, give_up_s=0.1), commits=1)
    wait_for(lambda: new.phase is Phase.TRIAL)
    assert new.wait(0.5) is None
    assert (driver.runs, former[0].phase) == (True, Phase.STANDBY)
    new.stop()
    assert new.wait() is Outcome.STOPPED
    wait_for(lambda: former[0].phase is Phase.RUNNING)


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ({"error": "no such column"}, "the former one goes on: no such column"),
        ({"commits": 0, "hangs": True}, "no batch was committed within 0.2 s"),
        ({"commits": 1, "hangs": True}, "no batch was committed within 0.2 s"),
    ],
)
def test_the_former_code_goes_on_if_the_new_one_fails(
    checkpoint: Path, former: tuple[Supervised, FakeDriver], query: dict[str, Any], reason: str
) -> None:
    new, _ = supervised(checkpoint, Trial(batches=2, give_up_s=0.2), **query)
    with pytest.raises(PreconditionError, match=reason):
        new.wait(30)
    wait_for(lambda: former[0].phase is Phase.RUNNING)
    (restart,) = RestartFolder(checkpoint).read()
    assert (restart.answer, restart.end, former[1].runs) == (Answer.PARKED, End.RETURNED, True)


def test_the_former_code_waits_until_the_new_one_has_let_go(
    checkpoint: Path, former: tuple[Supervised, FakeDriver], monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long this takes after `returned`, and it tries once more after a look that is late."""
    monkeypatch.setattr(module, "BACK_S", 0.1)
    new, driver = supervised(checkpoint, error="no such column")
    let_go, may = driver.let_go, threading.Event()
    driver.let_go = lambda lock: (may.wait(), let_go(lock))[1]  # type: ignore[method-assign]
    wait_for(lambda: new.phase is Phase.FAILED and RestartFolder(checkpoint).read()[0].end is End.RETURNED)
    assert former[0].wait(0.5) is None
    may.set()
    with pytest.raises(PreconditionError):
        new.wait(30)
    wait_for(lambda: former[0].phase is Phase.RUNNING)


def test_the_former_code_ends_if_others_have_the_query_for_long(
    checkpoint: Path, former: tuple[Supervised, FakeDriver], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BACK_S", 0.1)
    new, driver = supervised(checkpoint, Trial(batches=5), commits=1)
    wait_for(lambda: new.phase is Phase.TRIAL and former[0].phase is Phase.STANDBY)
    RestartFolder(checkpoint).end(1, End.RETURNED, "by a third one")
    assert former[0].wait(0.5) is None
    del locks[RestartFolder(checkpoint).lock("1")]
    with pytest.raises(ConflictError, match="has the query: by a third one"):
        former[0].wait(30)
    assert driver.runs
    new.stop()


def test_a_batch_that_does_not_end_is_not_waited_for_without_end(
    checkpoint: Path, former: tuple[Supervised, FakeDriver]
) -> None:
    former[1].parks = False
    new, _ = supervised(checkpoint, Trial(ask_s=0.2))
    with pytest.raises(UnavailableError, match=r"has not ended its batch within 0.2 s"):
        new.wait(30)
    wait_for(lambda: former[0].phase is Phase.RUNNING)
    assert (former[1].runs, former[1].closed) == (True, False)


def test_an_application_of_another_user_is_refused(
    checkpoint: Path, former: tuple[Supervised, FakeDriver], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RestartFolder, "refusal", lambda self, number: "it is bob's")
    new, _ = supervised(checkpoint)
    with pytest.raises(ConflictError, match=r"only user .* may replace it: it is bob's"):
        new.wait(30)
    assert (former[0].phase, former[1].closed) == (Phase.RUNNING, False)


class Failing:
    """A method of a supervisor's folder that fails so many times, while the supervisor is in a phase."""

    def __init__(
        self,
        one: Supervised,
        phase: Phase,
        method: str,
        *,
        times: int = 2,
        after: bool = False,
        error: Exception = TOO_MANY,
    ) -> None:
        self._one, self._phase, self._times, self._after, self._error = one, phase, times, after, error
        self._real = getattr(one._folder, method)
        self.failed = 0
        setattr(one._folder, method, self)

    def __call__(self, *arguments: Any) -> Any:
        fails = self._one.phase is self._phase and self.failed < self._times
        found = None if fails and not self._after else self._real(*arguments)
        if fails:
            self.failed += 1
            raise self._error
        return found


@pytest.mark.parametrize(
    ("phase", "method", "after"),
    [
        (Phase.RUNNING, "open_requests", False),
        (Phase.PARKING, "read", False),
        (Phase.PARKING, "answer", False),
        (Phase.PARKING, "answer", True),
        (Phase.STANDBY, "read", False),
    ],
)
def test_the_former_code_gives_the_query_away_also_if_its_files_fail_for_a_while(
    checkpoint: Path, former: tuple[Supervised, FakeDriver], phase: Phase, method: str, after: bool
) -> None:
    failing = Failing(former[0], phase, method, after=after, times=1 if after else 2)
    new, driver = supervised(checkpoint)
    assert former[0].wait(30) is Outcome.REPLACED
    wait_for(lambda: new.phase is Phase.RUNNING)
    assert (failing.failed, driver.runs, former[1].runs) == (1 if after else 2, True, False)
    new.stop()


@pytest.mark.parametrize(
    ("phase", "method", "after"),
    [
        (Phase.ASKING, "read", False),
        (Phase.GRANTED, "read", False),
        (Phase.TRIAL, "read", False),
        (Phase.TRIAL, "end", False),
        (Phase.TRIAL, "end", True),
    ],
)
def test_the_new_code_gets_the_query_also_if_its_files_fail_for_a_while(
    checkpoint: Path, former: tuple[Supervised, FakeDriver], phase: Phase, method: str, after: bool
) -> None:
    new, _ = supervised(checkpoint)
    failing = Failing(new, phase, method, after=after, times=1)
    assert former[0].wait(30) is Outcome.REPLACED
    wait_for(lambda: new.phase is Phase.RUNNING)
    assert failing.failed == 1
    assert [restart.end for restart in RestartFolder(checkpoint).read()] == [End.CONFIRMED]
    new.stop()


def test_the_former_code_comes_back_also_if_its_files_fail_for_a_while(
    checkpoint: Path, former: tuple[Supervised, FakeDriver]
) -> None:
    failing = [Failing(former[0], phase, "read") for phase in (Phase.STANDBY, Phase.BACK)]
    new, _ = supervised(checkpoint, error="no such column")
    with pytest.raises(PreconditionError):
        new.wait(30)
    wait_for(lambda: former[0].phase is Phase.RUNNING)
    assert former[1].runs
    assert failing[0].failed == 2


def test_who_has_granted_a_restart_lets_go_without_looking_at_files(
    checkpoint: Path, former: tuple[Supervised, FakeDriver]
) -> None:
    failing = Failing(former[0], Phase.PARKED, "read")
    new, _ = supervised(checkpoint)
    assert former[0].wait(30) is Outcome.REPLACED
    assert failing.failed == 0
    new.stop()


def test_a_damaged_file_ends_no_supervisor(checkpoint: Path, former: tuple[Supervised, FakeDriver]) -> None:
    for kind in ("requests", "answers"):
        create_fact(checkpoint / "restarts" / kind, 1, "[]")
    new, driver = supervised(checkpoint)
    with pytest.raises(IntegrityError, match="answers/1 is not readable"):
        new.wait(30)
    assert former[1].runs
    (checkpoint / "restarts" / "answers" / "1").unlink()
    create_fact(checkpoint / "restarts" / "answers", 1, '{"answer": "withdrawn"}')
    again, driver = supervised(checkpoint)
    assert former[0].wait(30) is Outcome.REPLACED
    wait_for(lambda: again.phase is Phase.RUNNING)
    assert driver.runs
    again.stop()


def test_an_error_of_a_query_is_that_of_its_supervisor(checkpoint: Path) -> None:
    running, driver = supervised(checkpoint)
    wait_for(lambda: running.phase is Phase.RUNNING)
    driver.error, driver.runs = ValueError("no room"), False
    with pytest.raises(ValueError, match="no room"):
        running.wait(30)
    assert locks == {}


def test_limits_of_a_trial() -> None:
    with pytest.raises(InvalidSettingError, match="batches: 0: must be 1 or more"):
        Trial(batches=0)
    with pytest.raises(InvalidSettingError, match=r"ask_s: 0: must be above 0"):
        Trial(ask_s=0)
