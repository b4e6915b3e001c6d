"""Forgotten jobs: refused, kept for the grace, taken back or deleted, whatever the clocks and the restarts do."""

from __future__ import annotations

import dataclasses
import json
import random

import pytest

from handover_manager import events as ev
from handover_manager.machine import FORGET_GRACE_S, SETTLE_S, TEMPORARY, HandoverCore
from handover_manager.queries.forgetting import RECORD_S, Deletion, Deletions, deletion_key, deletion_of_record
from handover_manager.queries.run import Run
from handover_manager.service import stored
from handover_manager.view import ClusterView, TaskGroup
from rhino_core.errors import InvalidRequestError, PreconditionError, RhinoError, UnknownError
from rhino_core.records import encode
from workloads.adaptation.scene import JOB, RUN, WALL_OFFSET_S, Cluster, Play, group

GRACE_S = 3600.0
LATER = ev.ForgetRequested(JOB, GRACE_S)
AT_ONCE = ev.ForgetRequested(JOB, 0.0)
DELETE = ev.DeleteJob(JOB)
KEY = deletion_key(JOB)


@pytest.fixture
def play() -> Play:
    """A query that has ended, in a manager that has settled."""
    cluster = Cluster("w1", "w2", "w3")
    cluster.chain(group(0, 0), "w1 w2")
    scene = Play(cluster)
    scene.begin(TaskGroup(0, (0,), 1))
    scene.see()
    scene.now += SETTLE_S
    scene(ev.QueryEnded(1, JOB, RUN))
    return scene


def later(play: Play, seconds: float) -> list[ev.Effect]:
    """Looks at every deadline until then, as the runner does, but no further than a deletion."""
    end, effects = play.now + seconds, list[ev.Effect]()
    while DELETE not in effects and play.now < end:
        play.now = min(play.core.next_deadline() or end, end)
        effects += play.see()
    return effects


def start(play: Play, run_id: str = "run-2", job: str = JOB) -> list[ev.RefuseQuery]:
    play.begin(TaskGroup(0, (0,), 1), session=2, run_id=run_id, job=job)
    return play.of(ev.RefuseQuery)


def test_the_state_stays_for_the_grace_and_the_query_is_refused_by_name(play: Play) -> None:
    assert [type(effect) for effect in play(LATER)] == [ev.Persist]
    assert DELETE not in later(play, GRACE_S - 1.0)
    (refused,) = start(play)
    assert (refused.session, refused.job, refused.run_id) == (2, JOB, "run-2")
    assert "job job-a (q) was forgotten at 1970-01-12 13:46:50+00:00" in refused.reason
    assert "will be deleted in 1 s" in refused.reason
    assert "`rhino forget --job job-a --undo`" in refused.reason
    assert later(play, 1.0)[-1] == DELETE
    assert [job.job for job in play.core.jobs.all()] == [JOB], "until the replication manager has answered"
    gone = {effect.key for effect in play(ev.JobForgotten(JOB)) if isinstance(effect, ev.Persist)}
    assert gone == {f"handover_manager/job/{JOB}", f"handover_manager/figures/{JOB}", KEY}
    assert (play.core.deletions.all(), play.core.jobs.all()) == ([], [])
    assert KEY not in play.journal


def test_who_has_forgotten_it_is_told_also_after_a_restart(play: Play) -> None:
    play(ev.ForgetRequested(JOB, GRACE_S, "rhino://c/operator/alice"))
    play(ev.ForgetRequested(JOB, GRACE_S, "rhino://c/operator/bob"))  # changes nothing
    again = play.restart()
    (found,) = again.core.deletions.all()
    assert found.by == "rhino://c/operator/alice"
    (refused,) = start(again)
    assert "was forgotten at 1970-01-12 13:46:50+00:00 by rhino://c/operator/alice, and its state" in refused.reason


def test_a_run_without_a_plan_is_refused_too(play: Play) -> None:
    play(LATER)
    unplanned = ev.QueryStarted(2, "app", JOB, "run-2", "q", (), unplanned=True)
    assert [type(effect) for effect in play(unplanned)] == [ev.RefuseQuery]


@pytest.fixture
def temporary(play: Play) -> Play:
    """A query runs in a checkpoint that Spark deletes afterwards."""
    play.begin(TaskGroup(0, (0,), 1), run_id="run-2", temporary=True)
    play.see()
    return play


def forgotten(play: Play) -> list[tuple[str, float]]:
    return [(one.by, one.left_s(play.now)) for one in play.core.deletions.all()]


def test_the_state_of_a_temporary_checkpoint_is_forgotten_when_its_query_ends(temporary: Play) -> None:
    later(temporary, 2 * SETTLE_S)
    assert forgotten(temporary) == []
    temporary(ev.QueryEnded(1, JOB, "run-2"))
    temporary.see()
    assert forgotten(temporary) == [(TEMPORARY, FORGET_GRACE_S)]
    assert DELETE in later(temporary, FORGET_GRACE_S)


@pytest.mark.parametrize("restart", [False, True])
def test_the_same_when_its_driver_is_lost_and_does_not_come_back(temporary: Play, restart: bool) -> None:
    if restart:
        temporary = temporary.restart()
    else:
        temporary(ev.SessionClosed(1))
    later(temporary, SETTLE_S - 0.1)
    assert forgotten(temporary) == []
    later(temporary, 0.2)
    ((by, _),) = forgotten(temporary)
    assert by == TEMPORARY


def test_state_of_a_temporary_checkpoint_that_is_taken_back_stays(temporary: Play) -> None:
    temporary(ev.QueryEnded(1, JOB, "run-2"))
    temporary.see()
    temporary(ev.ForgetUndone(JOB))
    later(temporary, SETTLE_S)
    assert forgotten(temporary) == []
    again = temporary.restart()
    later(again, 2 * SETTLE_S)
    assert forgotten(again) == []


def test_what_is_taken_back_stays_and_starts_again(play: Play) -> None:
    play(LATER)
    later(play, GRACE_S - 1.0)
    play(ev.ForgetUndone("q"))
    assert KEY not in play.journal
    assert DELETE not in later(play, 10 * GRACE_S)
    assert start(play) == []
    assert play.core.jobs[JOB].run.run_id == "run-2"


def test_taking_back_is_refused_with_the_reason(play: Play) -> None:
    with pytest.raises(UnknownError, match=r"'job-a' is not forgotten: `rhino status`"):
        play(ev.ForgetUndone(JOB))
    play(LATER)
    later(play, GRACE_S)
    with pytest.raises(PreconditionError, match="is over, and its state is being deleted"):
        play(ev.ForgetUndone(JOB))
    (refused,) = start(play)
    assert "its state is being deleted: start the query from a new checkpoint" in refused.reason


def test_at_once_there_is_no_way_back_also_in_the_grace(play: Play) -> None:
    play(LATER)
    assert [type(effect) for effect in play(AT_ONCE)] == [ev.Persist, ev.DeleteJob]
    with pytest.raises(PreconditionError):
        play(ev.ForgetUndone(JOB))


def test_repeating_it_does_not_begin_the_grace_again(play: Play) -> None:
    play(LATER)
    later(play, GRACE_S / 2)
    assert play(LATER) == []
    assert DELETE in later(play, GRACE_S / 2)


@pytest.mark.parametrize("event", [LATER, AT_ONCE])
def test_a_query_that_runs_is_not_forgotten(play: Play, event: ev.ForgetRequested) -> None:
    start(play)
    with pytest.raises(PreconditionError, match="stop the query first"):
        play(event)
    assert play.core.deletions.all() == []


def test_a_deletion_that_failed_is_asked_for_again(play: Play) -> None:
    assert DELETE in play(AT_ONCE)
    assert DELETE in play.see()
    assert DELETE in later(play, 1.0)


def test_a_handover_of_the_job_ends_before_its_state_is_deleted(play: Play) -> None:
    play(LATER)
    play.now += GRACE_S - 1.0
    play.start("w3", "0/0", deadline_s=60.0)
    assert DELETE not in later(play, 59.0)
    assert DELETE in later(play, 3.0)


def test_a_job_of_which_only_copies_are_known(play: Play) -> None:
    play(ev.ForgetRequested("other", GRACE_S))
    (refused,) = start(play, job="other")
    assert "job other (without a name)" in refused.reason
    again = play.restart()
    assert [deletion.job for deletion in again.core.deletions.all()] == ["other"]
    play(ev.ForgetUndone("other"))
    assert start(play, job="other") == []


def test_a_name_that_two_forgotten_jobs_have_takes_none_back() -> None:
    deletions = Deletions(0.0)
    for job in ("job-a", "job-b"):
        deletions.begin(job, Run(name="q"), GRACE_S, 0.0)
    with pytest.raises(InvalidRequestError, match="several forgotten jobs: use one of q@job-a, q@job-b"):
        deletions.undo("q")
    deletions.undo("q@job-a")
    assert deletions.undo("q") == [ev.Persist(deletion_key("job-b"), None)]


def test_time_without_a_manager_and_wall_clocks_do_not_count(play: Play) -> None:
    play(LATER)
    later(play, GRACE_S / 2 + 1.0)
    for now, offset_s in ((7.0, WALL_OFFSET_S * 1000), (10 * GRACE_S, 0.0)):  # set forward, set back, rebooted
        play.now, play.core = now, stored.restore(play.journal, now=now, wall_offset_s=offset_s)
        play(ev.Restarted())
        left_s = play.core.deletions.all()[0].left_s(now)
        assert GRACE_S / 2 - 1.0 <= left_s <= GRACE_S / 2 + RECORD_S
    assert DELETE not in later(play, left_s - 1.0)
    assert DELETE in later(play, 1.0)


def test_nothing_is_deleted_before_drivers_had_time_to_report(play: Play) -> None:
    play(ev.ForgetRequested(JOB, 1.0))
    play = play.restart()
    assert DELETE not in later(play, SETTLE_S - 0.1)
    assert DELETE in later(play, 0.1)


@pytest.mark.parametrize("deleted", [False, True])
def test_a_deletion_that_a_crash_interrupted_is_done_after_the_restart(play: Play, deleted: bool) -> None:
    """`deleted`: the crash came after the replication manager deleted the state, with the job's records still there."""
    play(LATER)
    later(play, GRACE_S)
    play = play.restart()
    with pytest.raises(PreconditionError, match="being deleted"):
        play(ev.ForgetUndone(JOB))
    assert DELETE in later(play, SETTLE_S)
    if deleted:
        play(ev.JobForgotten(JOB))
        assert play.restart().core.deletions.all() == []


class Model:
    """One job under managers that crash between any two steps, with clocks that jump. A seed drives it."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.journal: dict[str, dict[str, object]] = {}
        self.measured_s: float | None = None  # since it was forgotten, while managers ran; None: it is not forgotten
        self.no_way_back = self.deleted = self.running = False
        self.runs = self.restarts = self.undone = 0
        self.boot()

    def boot(self) -> None:
        self.restarts += 1
        self.now, offset_s = self.random.uniform(0, 10 * GRACE_S), self.random.uniform(-1, 1) * 10**9
        self.core: HandoverCore = stored.restore(self.journal, now=self.now, wall_offset_s=offset_s)
        self.running = False
        self.feed(ev.Restarted())

    def feed(self, event: ev.Event) -> list[ev.Effect]:
        effects = self.core.handle(event, now=self.now)
        self.core.check_invariants()
        if self.random.random() < 0.05:
            self.boot()  # before anything is on disk
            return []
        for effect in effects:
            if isinstance(effect, ev.Persist) and effect.record is None:
                self.journal.pop(effect.key, None)
            elif isinstance(effect, ev.Persist):
                self.journal[effect.key] = json.loads(json.dumps(encode(effect.record)))
        if DELETE in effects:
            self.delete()
        return list(effects)

    def delete(self) -> None:
        if self.random.random() < 0.2:
            return self.boot()
        assert self.no_way_back or (self.measured_s is not None and self.measured_s >= GRACE_S), "early"
        self.deleted = True
        if self.random.random() < 0.2:
            return self.boot()
        self.feed(ev.JobForgotten(JOB))
        return None

    def wait(self) -> None:
        end = self.now + self.random.choice([1.0, 20.0, RECORD_S, GRACE_S / 3])
        while self.now < end:
            at = min(self.core.next_deadline() or end, end)
            if self.measured_s is not None:
                self.measured_s += at - self.now
            self.now, restarts = at, self.restarts
            self.feed(ev.ClusterSeen(ClusterView()))
            if self.restarts != restarts:
                return

    def begin(self) -> None:
        self.runs += 1
        groups = (TaskGroup(0, (0,), 1),)
        effects = self.feed(ev.QueryStarted(1, "app", JOB, f"run-{self.runs}", "q", groups))
        if any(isinstance(effect, ev.RefuseQuery) for effect in effects):
            assert self.measured_s is not None, "refused without a reason"
        elif effects and not self.deleted:
            assert KEY not in self.journal, "a forgotten query runs"
            self.running = True

    def end(self) -> None:
        self.feed(ev.SessionClosed(1))
        self.running = False

    def forget(self) -> None:
        event, before = (AT_ONCE if self.random.random() < 0.1 else LATER), self.no_way_back
        self.no_way_back |= event is AT_ONCE
        try:
            self.feed(event)
        except RhinoError:
            self.no_way_back = before
            return
        if KEY in self.journal:
            self.measured_s = self.measured_s or 0.0
        self.no_way_back = before or self.deleted or self.journal.get(KEY, {}).get("due") is True

    def undo(self) -> None:
        try:
            self.feed(ev.ForgetUndone(JOB))
        except RhinoError:
            return
        if KEY not in self.journal:
            assert not self.deleted, "taken back, but the state is gone"
            self.undone += 1
            self.measured_s = None

    def settle(self) -> None:
        for _ in range(200):
            if self.deleted and not self.journal:
                return
            self.wait()


def test_whatever_happens_nothing_is_deleted_early_and_all_of_it_in_the_end() -> None:
    undone = deleted = restarts = 0
    for seed in range(150):
        model = Model(seed)
        for _ in range(120):
            model.random.choice(
                [model.wait, model.wait, model.wait, model.begin, model.end, model.forget, model.undo]
            )()
            if model.deleted:
                break
        if model.measured_s is not None:
            model.end()
            model.settle()
            assert model.deleted
            assert KEY not in model.journal
        undone, deleted, restarts = undone + model.undone, deleted + model.deleted, restarts + model.restarts
    assert min(undone, deleted, restarts) > 20, (undone, deleted, restarts)


def test_a_model_in_which_time_without_a_manager_counts_finds_it(monkeypatch: pytest.MonkeyPatch) -> None:
    read = deletion_of_record
    monkeypatch.setattr(stored, "deletion_of_record", lambda r, now: read(dataclasses.replace(r, left_s=0.0), now))
    with pytest.raises(AssertionError, match="early"):
        test_whatever_happens_nothing_is_deleted_early_and_all_of_it_in_the_end()


def test_a_model_in_which_the_record_goes_before_the_state_finds_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def delete(deletions: Deletions, deletion: Deletion, now: float) -> list[ev.Effect]:
        return [*deletions.end(deletion.job), ev.DeleteJob(deletion.job)]

    monkeypatch.setattr(Deletions, "_delete", delete)
    with pytest.raises(AssertionError):
        test_whatever_happens_nothing_is_deleted_early_and_all_of_it_in_the_end()
