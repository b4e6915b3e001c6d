"""Supervisors on one checkpoint: one of them runs the query, and another one replaces its code."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from query_evolution.replace import supervise as module
from query_evolution.replace.core import Answer, End, Phase
from query_evolution.replace.folder import RestartFolder
from query_evolution.replace.supervise import Outcome, Supervised, Trial
from rhino_core.errors import (
    ConflictError,
    IntegrityError,
    InvalidSettingError,
    PreconditionError,
    UnavailableError,
    UnknownError,
)
from spark_connector.facts import create_fact
from spark_connector.run_locks import RIGHT
from tests.query_evolution.replace.fakes import TOO_MANY, FakeDriver, locks, supervised, wait_for


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
