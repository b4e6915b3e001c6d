"""When the handover manager lets a job be forgotten, and what it forgets itself."""

from __future__ import annotations

import pytest

from handover_manager import events as ev
from handover_manager.machine import SETTLE_S
from handover_manager.view import TaskGroup
from rhino_core.errors import PreconditionError
from workloads.adaptation.scene import JOB, RUN, Cluster, Play, group


@pytest.fixture
def play() -> Play:
    cluster = Cluster("w1", "w2", "w3")
    cluster.chain(group(0, 0), "w1 w2")
    scene = Play(cluster)
    scene.begin(TaskGroup(0, (0,), 1))
    scene.see()
    scene.now += SETTLE_S
    return scene


def check(play: Play) -> str:
    return play.core.plan_forget(JOB, at_once=False, now=play.now).job


def end_query(play: Play) -> None:
    play(ev.QueryEnded(1, JOB, RUN))


def test_only_a_job_whose_query_has_ended(play: Play) -> None:
    with pytest.raises(PreconditionError, match="stop the query first"):
        check(play)
    end_query(play)
    assert check(play) == JOB


def test_a_driver_that_was_lost_has_time_to_come_back(play: Play) -> None:
    (job,) = play.core.jobs.all()
    assert job.run.session is not None
    play(ev.SessionClosed(job.run.session))
    with pytest.raises(PreconditionError, match="may come back"):
        check(play)
    play.now += SETTLE_S
    assert check(play) == JOB


def test_after_a_start_drivers_have_time_to_report(play: Play) -> None:
    end_query(play)
    play.now -= SETTLE_S
    with pytest.raises(PreconditionError, match="just started"):
        check(play)


def test_after_a_restart_any_driver_may_come_back(play: Play) -> None:
    end_query(play)
    assert not play.core.may_return(play.core.jobs[JOB], now=play.now)
    again = play.restart()
    assert again.core.may_return(again.core.jobs[JOB], now=again.now)
    again.now += SETTLE_S
    assert not again.core.may_return(again.core.jobs[JOB], now=again.now)


def test_not_during_a_handover_and_its_record_goes_with_the_job(play: Play) -> None:
    play.start("w2", "0/0")
    end_query(play)
    with pytest.raises(PreconditionError, match="is under way"):
        check(play)
    (handover,) = play.core.handovers.all()
    play.now += 10_000
    play.see()
    assert check(play) == JOB
    effects = play(ev.JobForgotten(JOB))
    assert {e.key for e in effects if isinstance(e, ev.Persist) and e.record is None} == {
        f"handover_manager/job/{JOB}",
        f"handover_manager/figures/{JOB}",
        f"handover_manager/handover/{handover.handover_id}",
        f"handover_manager/step/{handover.handover_id}/1",
    }
    assert play.core.jobs.all() == []
    assert play.core.handovers.all() == []
    play.see()
    play.restart()
    assert play(ev.JobForgotten(JOB)) == []
