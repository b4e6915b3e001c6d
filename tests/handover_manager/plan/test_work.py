"""Balancing by rows and by time, as the driver reports them with its batches."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from handover_manager import events as ev
from handover_manager.plan.work import KEPT, Work
from handover_manager.service.driver_messages import batch_logged_of
from handover_manager.service.messages import job_to_pb
from handover_manager.view import TaskGroup
from rhino.client.overview import JobView
from rhino_core import errors
from rhino_model.codec import decode
from rhino_model.intents import Rebalance, Request, ScaleOut, Weight
from rhino_pb import common_pb2
from rhino_pb import handover_pb2 as pb
from tests.handover_manager.support.work import report, running
from workloads.adaptation.scene import JOB, RUN, Play

CHAINS = ("w1 w2", "w1 w2", "w1 w2", "w2 w1")


def moves(play: Play, by: Weight) -> dict[str, str]:
    made = play.plan(Request(JOB, intent=Rebalance(by)))
    assert made.intent == f"rebalance by {by.value}"
    return {move.node.name: move.target for move in made.moves}


def test_rows_and_time_decide_where_bytes_are_equal() -> None:
    play = running(*CHAINS)
    report(play, 0, {"0/0": Work(90, 0.1), "0/1": Work(10, 0.9), "0/2": Work(10, 0.1), "0/3": Work(70, 0.1)})
    assert moves(play, Weight.ROWS) == {"0/1": "w2", "0/2": "w2"}, "90 beside 90"
    assert moves(play, Weight.TIME) == {"0/0": "w2", "0/2": "w2"}
    assert len(moves(play, Weight.BYTES)) == 1


def test_what_is_even_by_rows_need_not_be_by_time() -> None:
    play = running(*CHAINS)
    report(play, 0, {"0/0": Work(30, 1.0), "0/1": Work(30, 0.0), "0/2": Work(30, 0.0), "0/3": Work(90, 1.0)})
    for by in (Weight.ROWS, Weight.TIME):
        with pytest.raises(errors.AlreadyThereError, match=f"rebalance by {by.value}: nothing has to move"):
            moves(play, by)
    report(play, 1, {"0/3": Work(0, 1.0)})
    assert len(moves(play, Weight.ROWS)) == 1, "the newest rows count"


def test_one_slow_batch_changes_nothing() -> None:
    play = running("w1 w2", "w2 w1", "w1 w2", "w2 w1")
    usual = dict.fromkeys(("0/0", "0/1", "0/2", "0/3"), Work(10, 0.1))
    for batch in range(KEPT):
        report(play, batch, {**usual, "0/0": Work(10, 9.0)} if batch == 3 else usual)
    with pytest.raises(errors.AlreadyThereError):
        moves(play, Weight.TIME)
    for batch in range(KEPT, 2 * KEPT):
        report(play, batch, {**usual, "0/0": Work(10, 9.0)})
    assert moves(play, Weight.TIME) == {"0/2": "w2"}


def test_a_job_that_has_told_nothing_is_named_with_what_is_missing() -> None:
    play = running(*CHAINS)
    message = "has not reported the rows of virtual nodes 0/0, 0/1, 0/2, 0/3 yet: wait for its next batch"
    with pytest.raises(errors.PreconditionError, match=message):
        moves(play, Weight.ROWS)
    report(play, 0, {"0/0": Work(1, 0.1), "0/1": Work(1, 0.1)})
    with pytest.raises(errors.PreconditionError, match="reported the time of virtual nodes 0/2, 0/3 yet"):
        play.plan(Request(JOB, intent=ScaleOut(("w2",), Weight.TIME)))
    assert moves(play, Weight.COUNT)
    assert moves(play, Weight.BYTES)


def test_another_plan_tells_anew_and_a_driver_or_run_that_comes_back_need_not() -> None:
    play = running(*CHAINS)
    report(play, 0, {f"0/{partition}": Work(10, 0.1) for partition in range(4)})
    play(ev.SessionClosed(1))
    play.begin(TaskGroup(0, (0,), 4), session=2)
    assert len(moves(play, Weight.ROWS)) == 1
    play(ev.QueryStarted(2, "app", JOB, "run-2", "q", (), unplanned=True))
    assert len(moves(play, Weight.ROWS)) == 1
    play.begin(TaskGroup(0, (0,), 4), session=2, run_id="run-2")
    assert len(moves(play, Weight.ROWS)) == 1
    play.begin(TaskGroup(0, (0, 1), 4), session=2, run_id="run-2")
    with pytest.raises(errors.PreconditionError):
        moves(play, Weight.ROWS)
    report(play, 1, {"0/9": Work(1, 1.0)}, run_id="run-2")  # of no virtual node of this job
    assert not play.core.jobs[JOB].work.usual()


def test_what_a_driver_sends_is_what_status_shows() -> None:
    play = running(*CHAINS)
    report(play, 0, {"0/1": Work(1, 0.1)})
    version = common_pb2.StoreVersion(
        store=common_pb2.StoreId(job=JOB, store="default"), version=common_pb2.Version(version=2)
    )
    work = [pb.NodeWork(partition=1, rows=7, task_s=0.5), pb.NodeWork(partition=0, rows=0, task_s=0.25)]
    logged = pb.BatchLogged(job=JOB, run_id=RUN, batch_id=1, versions=[version], work=work)
    play(batch_logged_of(logged, session=1))
    view = decode(JobView, job_to_pb(play.core.jobs[JOB], play.core.view))
    assert [(n.rows, n.task_s) for n in view.virtual_nodes] == [(0, 0.25), (7, 0.3), (None, None), (None, None)]


def test_rows_that_are_not_counted_are_no_zeros() -> None:
    play = running(*CHAINS)
    report(play, 0, {f"0/{partition}": Work(None, 0.1) for partition in range(len(CHAINS))})
    view = decode(JobView, job_to_pb(play.core.jobs[JOB], play.core.view))
    assert {(n.rows, n.task_s) for n in view.virtual_nodes} == {(None, 0.1)}
    with pytest.raises(errors.PreconditionError, match="trackTotalNumberOfRows"):
        moves(play, Weight.ROWS)
    version = common_pb2.StoreVersion(
        store=common_pb2.StoreId(job=JOB, store="default"), version=common_pb2.Version(version=2)
    )
    work = [pb.NodeWork(partition=0, rows_not_counted=True, task_s=0.5), pb.NodeWork(partition=1, rows=0)]
    logged = batch_logged_of(pb.BatchLogged(job=JOB, run_id=RUN, batch_id=1, versions=[version], work=work), session=1)
    assert [one.rows for _, one in sorted(logged.work.items())] == [None, 0]


@settings(deadline=None)
@given(st.lists(st.integers(0, 50), min_size=4, max_size=12), st.sampled_from([Weight.ROWS, Weight.TIME]))
def test_balancing_never_raises_the_peak(sizes: list[int], by: Weight) -> None:
    play = running(*["w1 w2"] * len(sizes), workers="w1 w2 w3")
    play.cluster.worker("w3", free_bytes=10_000)
    play.see()
    report(play, 0, {f"0/{p}": Work(size, size / 10) for p, size in enumerate(sizes)})
    made = moves(play, by)
    after = dict.fromkeys(("w1", "w2", "w3"), 0)
    for partition, size in enumerate(sizes):
        after[made.get(f"0/{partition}", "w1")] += max(size, 0)
    assert max(after.values()) <= sum(sizes)
    if sum(sizes) > 2 * max(sizes):
        assert max(after.values()) < sum(sizes)
        assert max(after.values()) <= sum(sizes) / 3 * 1.1 + max(sizes), "within one virtual node of the mean"
