"""Moves of a query that runs no batch: the marker stands as soon as its driver says that the next one goes by it."""

from __future__ import annotations

import pytest

from handover_manager import events as ev
from handover_manager.machine import SETTLE_S
from handover_manager.view import TaskGroup
from rhino_model.handovers import Phase
from rhino_model.intents import Drain, Request
from rhino_model.strategy import Kind, Strategy
from workloads.adaptation.scene import JOB, RUN, Play, group, node, pair

G0, G1 = group(0, 0), group(0, 1)
OTHER = "job-b"


@pytest.fixture
def play() -> Play:
    """One batch has run, long ago."""
    scene = pair()
    scene.now = SETTLE_S
    scene.batch(1, {G0: "w1", G1: "w1"})
    scene.now += 60
    return scene


def idle(play: Play, epoch: int | None = None, job: str = JOB, run_id: str = RUN) -> list[ev.Effect]:
    """The driver says so of the newest map, or of that of `epoch`."""
    newest = play.core.jobs[job].map.configuration_epoch
    return play(ev.QueryIdle(play.session(job), job, run_id, newest if epoch is None else epoch))


def test_an_idle_query_confirms_and_the_target_becomes_owner(play: Play) -> None:
    handover = play.start("w2", "0/0")
    idle(play)
    assert (handover.phase, handover.confirmed_batch_id) == (Phase.CONFIRMED, None)
    assert handover.steps[0].reason == "query q is idle: its next batch runs there"
    assert play.of(ev.ChangeGroup) == [ev.ChangeGroup("h1", G0, make_owner="w2")]
    assert play.desired("0/0") == "w2"
    assert "confirmed query q is idle" in "\n".join(play.core.explain("q", "0/0").reasons)
    assert not play.core.jobs[JOB].measurements.steps, "no batch: nothing to learn how long a switch takes"
    again = play.restart().handover()
    assert (again.phase, again.steps[0].reason) == (Phase.CONFIRMED, handover.steps[0].reason)


def test_what_was_said_of_an_older_map_or_run_confirms_nothing(play: Play) -> None:
    idle(play)
    handover = play.start("w2", "0/0")
    idle(play, (handover.configuration_epoch or 0) - 1)
    idle(play, run_id="run-0")
    idle(play, (handover.configuration_epoch or 0) + 1)  # of a former run of the job
    assert play.handover().phase is Phase.MARKED
    idle(play)
    assert play.handover().phase is Phase.CONFIRMED


def test_the_steps_of_a_handover_follow_each_other(play: Play) -> None:
    request = Request(JOB, ("0/0", "0/1"), "w2", strategy=Strategy(Kind.FLUID))
    play(ev.HandoverRequested("h1", request))
    handover = play.handover()
    idle(play)
    assert [step.phase for step in handover.steps] == [Phase.CONFIRMED, Phase.MARKED]
    idle(play, (handover.configuration_epoch or 0) - 1)
    assert [step.phase for step in handover.steps] == [Phase.CONFIRMED, Phase.MARKED]
    play.batch(2, {G0: "w2", G1: "w2"})  # not idle any more
    assert (handover.phase, handover.confirmed_batch_id) == (Phase.CONFIRMED, 2)


def test_of_two_queries_each_is_waited_for(play: Play) -> None:
    other = group(0, 0, OTHER)
    play.cluster.chain(other, "w1 w2")
    play.begin(job=OTHER, name="other")
    play.see()
    play.cluster.worker("w1", draining=True)
    play(ev.HandoverRequested("h1", Request("", intent=Drain("w1"))))
    handover = play.handover()
    idle(play, job=OTHER)
    assert handover.phase is Phase.MARKED
    idle(play, job=OTHER)
    assert handover.steps[0].reason.count("other is idle") == 1
    play.batch(2, {G0: "w2", G1: "w2"})
    assert (handover.phase, handover.confirmed_batch_id) == (Phase.CONFIRMED, 2)


def test_a_worker_is_safe_to_remove_while_the_query_is_idle(play: Play) -> None:
    def blockers() -> str:
        play.see()
        return "; ".join(play.drain_state("w1").blockers)

    play.cluster.worker("w1", draining=True)
    play(ev.HandoverRequested("h1", Request("", intent=Drain("w1"))))
    play.cluster.chain(G0, "w2 w3")
    play.cluster.chain(G1, "w2 w3")
    assert "virtual nodes that ran there in the newest batch: 2" in blockers()
    idle(play)
    assert blockers() == ""
    play(ev.SessionClosed(1))  # nobody can say what a driver that comes back runs
    assert "virtual nodes that ran there in the newest batch: 2" in blockers()
    play.begin(session=2)
    assert "virtual nodes that ran there in the newest batch: 2" in blockers()
    idle(play)
    assert blockers() == ""
    after = play.restart()
    after.begin(session=3)
    after.now += SETTLE_S
    after.see()
    assert "have not run since the manager's start" in after.drain_state("w1").blockers[0]
    idle(after)
    assert after.drain_state("w1").safe_to_remove


def test_a_gap_in_batches_is_over_for_an_idle_query(play: Play) -> None:
    request = Request(JOB, ("0/0", "0/1"), "w2", strategy=Strategy(Kind.FLUID, gap_batches=3))
    play(ev.HandoverRequested("h1", request))
    idle(play)
    assert [step.phase for step in play.handover().steps] == [Phase.CONFIRMED, Phase.MARKED]


def test_the_newest_batch_once_more_confirms_no_later_marker(play: Play) -> None:
    """Its writer is the target, but a batch may run where the state was moved while the query was idle."""
    play.start("w2", "0/0")
    idle(play)
    play.cluster.chain(G0, "w2 w1")
    play.see()
    back = play.start("w1", "0/0", handover_id="h2")
    play(ev.SessionClosed(1))
    play.begin(session=2)
    play.batch(1, {G0: "w1", G1: "w1"}, repeated=True)
    assert back.phase is Phase.MARKED
    assert not play.core.jobs[JOB].logged.misses, "nor is it a miss"
    assert play.core.jobs[JOB].logged.actual[node("0/0")] == "w1"
    play.batch(2, {G0: "w2", G1: "w1"})
    assert play.handover("h2").phase is Phase.MARKED
    play.batch(3, {G0: "w1", G1: "w1"})
    assert play.handover("h2").phase is Phase.CONFIRMED


def test_one_target_lost_and_the_other_idle(play: Play) -> None:
    play.cluster.chain(G1, "w1 w3")
    play.see()
    play.cluster.worker("w1", draining=True)
    play(ev.HandoverRequested("h1", Request(JOB, intent=Drain("w1"))))
    play.cluster.lose("w3")
    play.see()
    handover = play.handover()
    assert handover.phase is Phase.MARKED
    idle(play)
    assert play.handover().phase is Phase.REDIRECTED
    assert play.of(ev.ChangeGroup) == [ev.ChangeGroup("h1", G0, make_owner="w2")]
    assert "w3 was lost" in handover.reason
    assert "is idle" in handover.reason
    assert play.desired("0/0") == "w2"


def test_a_deadline_without_batches_says_so(play: Play) -> None:
    handover = play.start("w2", "0/0", deadline_s=5)
    play.now += 6
    play.see()
    assert handover.phase is Phase.ROLLED_BACK
    assert "no batch was logged since the marker, and no driver has said that none runs" in handover.reason


def test_a_run_without_a_batch_goes_by_what_the_former_one_had(play: Play) -> None:
    """A restarted query without new data: nobody can plan it yet."""
    play(ev.SessionClosed(1))
    play(ev.QueryStarted(2, "app", JOB, "run-2", "q", (), unplanned=True))
    assert play.of(ev.PushLocations)[-1].session == 2
    handover = play.start("w2", "0/0")
    idle(play, run_id="run-2")
    assert handover.phase is Phase.CONFIRMED
    play(ev.QueryStarted(2, "app", JOB, "run-2", "q", (TaskGroup(0, (0,), 1),)))
    assert [n.partition for n in play.core.jobs[JOB].map.nodes] == [0], "the plan tells"


def test_a_run_without_a_batch_and_without_a_former_one_is_of_no_concern(play: Play) -> None:
    assert play(ev.QueryStarted(1, "app", OTHER, "run-1", "other", (), unplanned=True)) == []
    assert OTHER not in [job.job for job in play.core.jobs.all()]


def test_the_time_between_two_runs_is_not_that_of_a_batch(play: Play) -> None:
    figures = play.core.jobs[JOB].measurements
    play.now += 2
    play.batch(2, {G0: "w1", G1: "w1"})
    before = list(figures.intervals_s)
    play(ev.SessionClosed(1))
    play.begin(session=2, run_id="run-2")
    play.now += 3600
    play.batch(3, {G0: "w1", G1: "w1"}, run_id="run-2")
    assert list(figures.intervals_s) == before
    play.now += 2
    play.batch(4, {G0: "w1", G1: "w1"}, run_id="run-2")
    assert list(figures.intervals_s) == [*before, 2]


def test_idle_under_an_older_map_is_not_idle(play: Play) -> None:
    """The next batch may go by the older map."""
    job = play.core.jobs[JOB]
    idle(play)
    assert job.idle
    play.start("w2", "0/0")
    assert job.run.idle_epoch == job.map.configuration_epoch - 1
    assert not job.idle
    idle(play, job.map.configuration_epoch - 1)  # said before the new map was there
    assert not job.idle
    play.cluster.worker("w1", draining=True)
    play.cluster.chain(G0, "w2 w3")
    play.cluster.chain(G1, "w2 w3")
    play.see()
    assert any("ran there in the newest batch" in blocker for blocker in play.drain_state("w1").blockers)
    idle(play)
    assert job.idle
    assert play.drain_state("w1").virtual_nodes == 0


def test_a_gap_in_batches_is_not_over_while_the_query_is_idle_under_an_older_map_only(play: Play) -> None:
    request = Request(JOB, ("0/0", "0/1"), "w2", strategy=Strategy(Kind.FLUID, gap_batches=3))
    play(ev.HandoverRequested("h1", request))
    handover, older = play.handover(), play.core.jobs[JOB].map.configuration_epoch - 1
    play.batch(2, {G0: "w2", G1: "w1"})
    assert [step.phase for step in handover.steps] == [Phase.CONFIRMED, Phase.PREPARING]
    idle(play, older)
    play.see()
    assert handover.steps[1].phase is Phase.PREPARING
    idle(play)
    play.see()
    assert play.handover().steps[1].phase is Phase.MARKED
