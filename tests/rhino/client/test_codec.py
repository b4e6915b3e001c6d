"""Answers of the managers and sidecars as objects, and objects as JSON."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pytest

from rhino.client.codec import decode, plain
from rhino.client.forget import ForgottenJob
from rhino.client.handovers import DrainView, Explanation, Handover, Move, MoveKind, Phase, Plan, Prediction, Step
from rhino.client.moved import MovedCheckpoint
from rhino.client.overview import GroupView, JobView, MemberView, VirtualNodeView, WorkerView
from rhino.client.scrub import NO_SCRUB, ScrubView
from rhino_core.errors import RemoteProtocolError
from rhino_core.ids import Epoch, GroupId
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
    move = handover_pb2.Move(virtual_node="0/1", kind=handover_pb2.MOVE_KIND_CHECKPOINT_ASSISTED, bytes_to_move=7)
    message = handover_pb2.HandoverStatus(
        handover_id="h-1",
        plan=handover_pb2.HandoverPlan(moves=[move], prediction=handover_pb2.Prediction(pause_s=0.5)),
        phase=handover_pb2.HANDOVER_PHASE_ROLLED_BACK,
        waiting_for=["0/1"],
        steps=[step],
    )
    found = decode(Handover, message)
    assert (found.phase, found.step, found.measured, found.waiting_for) == (Phase.ROLLED_BACK, 1, None, ("0/1",))
    assert found.plan.moves == (Move("0/1", "", "", MoveKind.CHECKPOINT_ASSISTED, 7, 0),)
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
