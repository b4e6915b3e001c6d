"""Checks of a request, each with its own error, and what a plan says."""

from __future__ import annotations

import pytest

from handover_manager.view import TaskGroup
from rhino_core import errors
from rhino_core.ids import DiskState
from rhino_model.handovers import MoveKind
from rhino_model.intents import Request
from rhino_model.strategy import Kind
from workloads.adaptation.scene import JOB, Cluster, Play, group


@pytest.fixture
def play() -> Play:
    """0/0 and 0/1 on w1 with copies on w2; w3 stores a part of 0/1; w4 is suspect, w5 lost, w6 to w8 lack room."""
    cluster = Cluster("w1", "w2", "w3", "w4", "w5", "w6", "w7", "w8")
    cluster.chain(group(0, 0), "w1 w2")
    cluster.chain(group(0, 1), "w1 w2", {"w1": 100, "w2": 90, "w3": 30})
    cluster.worker("w4", live=False)
    cluster.lose("w5")
    cluster.worker("w6", free_bytes=199)
    cluster.worker("w7", disk=DiskState.FULL)
    cluster.worker("w8", disk=DiskState.FAILING)
    scene = Play(cluster)
    scene.begin(TaskGroup(0, (0,), 3))
    scene.see()
    return scene


REFUSALS = [
    (Request("nobody", ("0/0",), "w2"), errors.UnknownError, "job 'nobody'"),
    (Request(JOB, ("0/0", "0/7"), "w2"), errors.UnknownError, "0/7.*it has 0/0, 0/1"),
    (Request(JOB, ("0/0",), "w9"), errors.UnknownError, "worker 'w9'.*known are w1"),
    (Request(JOB, ("0/0",), "w4"), errors.UnavailableError, "w4 is not live"),
    (Request(JOB, ("0/0",), "w5"), errors.UnavailableError, "w5 is not live"),
    (Request(JOB, ("0/0",), "w1"), errors.AlreadyThereError, "0/0 are on worker w1"),
    (Request(JOB, ("0/0", "0/1"), "w6"), errors.NoSpaceError, "199 bytes free, the handover needs 200"),
    (Request(JOB, ("0/0",), "w7"), errors.NoSpaceError, "w7 takes no files, its disk is full .disk of w7"),
    (Request(JOB, ("0/0",), "w8"), errors.PreconditionError, "w8 takes no files, its disk is failing .disk of w8"),
    (Request(JOB, (), "w2"), errors.InvalidRequestError, "no virtual node"),
    (Request(JOB, ("0-1",), "w2"), errors.InvalidRequestError, "'0-1'"),
    (Request(JOB, ("0/1\n",), "w2"), errors.InvalidRequestError, "write it as"),
    (Request(JOB, ("0/1", "0/01"), "w2"), errors.InvalidRequestError, "given twice: 0/1"),
    (Request(JOB, ("0/1",), "w2", -1.0), errors.InvalidRequestError, "deadline -1"),
    (Request(JOB, ("0/1",), "w2", float("nan")), errors.InvalidRequestError, "deadline nan"),
    (Request(JOB, ("0/2",), "w2"), errors.PreconditionError, "0/2 has no state yet"),
]


@pytest.mark.parametrize(("request_", "kind", "text"), REFUSALS)
def test_refusals(play: Play, request_: Request, kind: type[Exception], text: str) -> None:
    before = dict(play.journal)
    with pytest.raises(kind, match=text):
        play.plan(request_)
    assert play.journal == before


def test_overlap_with_a_running_handover(play: Play) -> None:
    play.start("w3", "0/0")
    with pytest.raises(errors.ConflictError, match=r"0/0 \(handover h1\)"):
        play.plan(Request(JOB, ("0/1", "0/0"), "w2"))
    assert {move.target for move in play.plan(Request(JOB, ("0/1",), "w2")).moves} == {"w2"}


def test_bytes_and_kinds(play: Play) -> None:
    play.cluster.worker("w3", free_bytes=170)
    play.see()
    direct, partly = play.plan(Request(JOB, ("0/0", "0/1"), "w3")).moves
    assert (direct.kind, direct.bytes_to_move, direct.state_bytes) == (MoveKind.DIRECT, 100, 100)
    assert (partly.kind, partly.bytes_to_move, partly.origin) == (MoveKind.CHECKPOINT_ASSISTED, 70, "w1")
    plan = play.plan(Request(JOB, ("0/0", "0/1"), "w2"))
    assert (plan.bytes_to_move, plan.strategy.kind, len(plan.steps)) == (0, Kind.ALL_AT_ONCE, 1)
    assert {move.kind for move in plan.moves} == {MoveKind.CHECKPOINT_ASSISTED}


def test_a_job_by_its_unique_name(play: Play) -> None:
    assert play.plan(Request("q", ("0/0",), "w2")).jobs == (JOB,)
    play.begin(job="job-b", session=2, name="q")
    with pytest.raises(errors.InvalidRequestError, match=r"not unique.*q@job-a, q@job-b"):
        play.plan(Request("q", ("0/0",), "w2"))
