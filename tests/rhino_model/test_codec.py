"""Answers of the managers and sidecars as objects, objects as messages and as JSON."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pytest

from rhino.client.overview import GroupView, JobView, MemberView, VirtualNodeView, WorkerView
from rhino.client.query_record import ForgottenJob, MovedCheckpoint
from rhino.client.scrub import NO_SCRUB, ScrubView
from rhino_core.errors import RemoteProtocolError
from rhino_core.ids import Epoch, GroupId, VirtualNode
from rhino_model.codec import decode, encode, plain
from rhino_model.decisions import DecidedMove, Decision, Outcome
from rhino_model.handovers import (
    DrainView,
    Explanation,
    Handover,
    HotNode,
    Measured,
    Move,
    MoveKind,
    Phase,
    Plan,
    PlannedStep,
    Prediction,
    Step,
)
from rhino_model.intents import Weight
from rhino_model.strategy import Kind, Strategy
from rhino_pb import common_pb2, handover_pb2, replication_pb2

MODEL: list[tuple[Any, Any]] = [
    (WorkerView, replication_pb2.WorkerStatus()),
    (MemberView, replication_pb2.MemberStatus()),
    (GroupView, replication_pb2.GroupStatus()),
    (ScrubView, common_pb2.ScrubStatus()),
    (JobView, handover_pb2.JobStatus()),
    (VirtualNodeView, handover_pb2.VirtualNodeStatus()),
    (Plan, handover_pb2.HandoverPlan()),
    (Prediction, handover_pb2.Prediction()),
    (DrainView, handover_pb2.DrainStatus()),
    (Explanation, handover_pb2.ExplainReply()),
    (ForgottenJob, common_pb2.ForgetJobReply()),
    (MovedCheckpoint, handover_pb2.MoveCheckpointReply()),
]


@pytest.mark.parametrize(("kind", "message"), MODEL, ids=lambda item: getattr(item, "__name__", ""))
def test_every_field_has_a_place_in_its_message(kind: Any, message: Any) -> None:
    assert isinstance(decode(kind, message), kind)


def test_a_worker() -> None:
    worker = common_pb2.Worker(worker_id="w1", host="h1", peer_address="h1:7462")
    state = replication_pb2.WORKER_STATE_SUSPECT
    message = replication_pb2.WorkerStatus(worker=worker, state=state, member_groups=3, stored_bytes=9)
    found = decode(WorkerView, message)
    assert (found.worker_id, found.host, found.peer_address, found.state) == ("w1", "h1", "h1:7462", "suspect")
    assert (found.secondary_groups, found.stored_bytes, found.scrub, found.disk) == (3, 9, NO_SCRUB, "ok")
    message.disk = common_pb2.DISK_STATE_FULL
    assert decode(WorkerView, message).disk == "full"


def test_what_is_not_set_is_none_and_states_without_a_name_are_unknown() -> None:
    assert decode(Prediction, handover_pb2.Prediction(total_s=0.0)) == Prediction(None, 0.0, None, "")
    assert decode(WorkerView, replication_pb2.WorkerStatus()).state == "unknown"
    node = decode(VirtualNodeView, handover_pb2.VirtualNodeStatus(rows=0))
    assert (node.rows, node.task_s) == (0, None)


def test_a_handover() -> None:
    step = handover_pb2.StepStatus(phase=handover_pb2.HANDOVER_PHASE_ROLLED_BACK, configuration_epochs={"q": 3})
    move = handover_pb2.Move(
        job="q", virtual_node="0/1", operators=[0], kind=handover_pb2.MOVE_KIND_CHECKPOINT_ASSISTED, bytes_to_move=7
    )
    message = handover_pb2.HandoverStatus(
        handover_id="h-1",
        plan=handover_pb2.HandoverPlan(
            steps=[handover_pb2.PlannedStep(moves=[move])], prediction=handover_pb2.Prediction(pause_s=0.5)
        ),
        phase=handover_pb2.HANDOVER_PHASE_ROLLED_BACK,
        waiting_for=["0/1"],
        steps=[step],
    )
    found = decode(Handover, message)
    assert (found.phase, found.step, found.measured, found.waiting_for) == (Phase.ROLLED_BACK, 1, None, ("0/1",))
    assert found.plan.moves == (Move(VirtualNode("q", 0, 1), (0,), "", "", MoveKind.CHECKPOINT_ASSISTED, 7, 0),)
    assert found.plan.prediction.pause_s == 0.5
    assert found.steps == (Step(Phase.ROLLED_BACK, "", {"q": 3}, 0, 0, 0, 0, None),)


@pytest.mark.parametrize("kind", [Phase, MoveKind])
def test_every_value_on_the_wire_has_a_member(kind: Any) -> None:
    descriptor = {Phase: handover_pb2.HandoverPhase, MoveKind: handover_pb2.MoveKind}[kind].DESCRIPTOR
    assert len(descriptor.values) == len(kind) + 1, "and the value of what is not set"


def test_a_value_that_this_version_does_not_know_is_the_other_side_s_error() -> None:
    with pytest.raises(RemoteProtocolError, match="HandoverPhase 99"):
        decode(Handover, handover_pb2.HandoverStatus(phase=99))  # type: ignore[arg-type]


def test_json_has_fields_and_properties() -> None:
    member = MemberView("w1", "live", True, 3, 10)
    group = GroupView(GroupId("q", 0, 1), Epoch(1, 2), 2, 1, 0, (member,))
    found = json.loads(json.dumps(plain(group)))
    assert (found["degraded"], found["durability"], found["settings"]["min_copies"]) == (True, "replicated", None)
    assert (found["group"], found["epoch"]) == (["q", 0, 1], [1, 2])
    assert found["members"][0] == {
        "worker_id": "w1",
        "state": "live",
        "whole": True,
        "newest_version": 3,
        "stored_bytes": 10,
    }


def test_json_of_enums_maps_and_lists() -> None:
    @dataclass
    class Thing:
        phase: Phase
        by_job: dict[str, tuple[int, ...]]

    assert plain([Thing(Phase.MARKED, {"q": (1, 2)})]) == [{"phase": "marked", "by_job": {"q": [1, 2]}}]


def test_an_object_and_its_message_say_the_same() -> None:
    move = Move(VirtualNode("q", 0, 1), (0, 1), "a", "b", MoveKind.DIRECT, 7, 9, "as asked for")
    hot = HotNode(VirtualNode("q", 0, 2), "a", Weight.ROWS, 1.5)
    step = PlannedStep((move,), Prediction(None, 2.0, 0.0))
    plan = Plan((step,), Strategy(Kind.FLUID, gap_s=0.5), "rebalance by rows", Prediction(basis="nothing"), (hot,))
    done = Step(Phase.CONFIRMED, "", {"q": 3}, 1, 2, 4, 7, None)
    measured = Measured(2.5, None, 0.1)
    handover = Handover("h-1", Phase.CONFIRMED, plan, "", 3, 0, 1, 2, 4, 7, (), (done,), measured, "me")
    assert decode(Handover, encode(handover_pb2.HandoverStatus, handover)) == handover
    decision = Decision(1, 5, "q", Outcome.MOVING, "why", 1.5, moves=(DecidedMove("0/1", "a", "b"),), finished_ms=6)
    assert decode(Decision, encode(handover_pb2.AdaptationDecision, decision)) == decision
    drain = DrainView("w", True, ("busy",), 1, 2, "", 0)
    message = encode(handover_pb2.DrainStatus, drain)
    assert (decode(DrainView, message), message.safe_to_remove) == (drain, False)
