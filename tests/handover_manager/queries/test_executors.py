"""The places of a driver's executors: the replication manager learns them, and plans use them."""

from __future__ import annotations

import pytest

from handover_manager import events as ev
from handover_manager.queries import executors
from rhino_core.ids import GroupId
from rhino_model.intents import Drain, Intent, Rebalance, Request, ScaleIn, ScaleOut
from workloads.adaptation.scene import JOB, Play, pair


@pytest.fixture
def play() -> Play:
    return pair()


def change(
    play: Play, executor: str, worker: str = "", *, host: str = "", removed: bool = False, session: int = 1
) -> list[ev.NameExecutors]:
    play(ev.ExecutorChanged(session, executor, host, removed, worker))
    return play.of(ev.NameExecutors)


def named(workers: str = "", hosts: str = "", job: str = JOB) -> ev.NameExecutors:
    return ev.NameExecutors(job, frozenset(workers.split()), frozenset(hosts.split()))


def test_workers_are_told_when_they_change(play: Play) -> None:
    assert change(play, "0", "w1") == [named("w1")]
    assert change(play, "1", "w1") == []
    assert change(play, "2", "w2") == [named("w1 w2")]
    assert change(play, "0", removed=True) == []
    assert change(play, "1", "w1", removed=True) == [named("w2")]
    assert change(play, "2", removed=True) == [], "others will come"


def test_an_executor_counts_by_its_host_until_it_has_reported_its_worker(play: Play) -> None:
    assert change(play, "0", host="pod-7") == [named(hosts="pod-7")]
    assert change(play, "1", "w2", host="pod-8") == [named("w2", "pod-7")]
    assert change(play, "0", "w1", host="pod-7") == [named("w1 w2")]
    assert change(play, "0", "w3", host="pod-7") == [named("w3 w2")], "attached to another sidecar"


def test_a_query_that_starts_gets_those_of_its_session(play: Play) -> None:
    change(play, "0", "w1")
    assert change(play, "0", "w3", session=2) == [], "of another application"
    play.begin(job="job-b", name="other", session=2)
    assert play.of(ev.NameExecutors) == [named("w3", job="job-b")]


def test_a_session_that_has_closed_is_forgotten(play: Play) -> None:
    change(play, "0", "w1")
    play(ev.SessionClosed(1))
    play.begin(session=2)
    assert play.of(ev.NameExecutors) == []
    assert change(play, "0", "w1", session=2) == [named("w1")]


def test_executors_that_are_remembered_have_a_bound(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executors, "EXECUTORS_MAX", 1)
    change(play, "0", "w1")
    assert change(play, "1", "w2") == []
    assert change(play, "0", "w3") == [named("w3")]


def targets(play: Play, intent: Intent) -> set[str]:
    made = play.core.plan(Request(JOB, intent=intent), now=play.now)
    return {move.target for move in made.moves}


def test_a_drain_and_a_rebalance_choose_workers_with_executors_of_the_query(play: Play) -> None:
    """Tasks of a virtual node elsewhere run on any worker, and load its state over the network."""
    assert targets(play, Drain("w1")) == {"w2"}, "nothing is known: the copies decide"
    change(play, "0", "w1")
    change(play, "1", "w3")
    for intent in (Drain("w1"), ScaleIn(("w1",)), Rebalance()):
        assert targets(play, intent) == {"w3"}, intent
    assert targets(play, ScaleOut(("w2",))) == {"w2"}, "it was asked for"


def test_a_worker_can_be_drained_although_no_other_has_executors_or_room(play: Play) -> None:
    change(play, "0", "w1")
    assert targets(play, Drain("w1")) == {"w2"}
    change(play, "1", "w3")
    play.cluster.worker("w3", free_bytes=10)
    play.see()
    assert targets(play, Drain("w1")) == {"w2"}


def test_they_are_counted_and_a_query_is_quiet_since_its_batch_or_its_report(play: Play) -> None:
    job = play.core.jobs[JOB]
    change(play, "0", "w1")
    change(play, "1", "w1")
    assert play.core.executors(job) == 2
    since = play.now
    play.now += 50.0
    assert job.quiet_s(play.now) == play.now - since
    play.batch(0, {GroupId(JOB, 0, 0): "w1", GroupId(JOB, 0, 1): "w1"})
    assert job.quiet_s(play.now) == 0.0
    play.now += 7.0
    assert job.quiet_s(play.now) == 7.0
    play(ev.SessionClosed(1))
    assert (play.core.executors(job), job.quiet_s(play.now)) == (None, None)
    play.begin(session=2)
    assert (play.core.executors(job), job.quiet_s(play.now)) == (0, 0.0), "its driver is new here"
