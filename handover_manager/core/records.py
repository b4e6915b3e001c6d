"""Journal records of jobs and handovers: JSON values and back."""

from __future__ import annotations

from typing import Any

from handover_manager.core.handover import Handover, Phase
from handover_manager.core.job import Job
from handover_manager.core.plan import Move, MoveKind, Plan
from handover_manager.core.view import TaskGroup
from rhino.ids import GroupId, VirtualNode

JOB_PREFIX = "handover_manager/job/"
HANDOVER_PREFIX = "handover_manager/handover/"


def job_key(job: str) -> str:
    return f"{JOB_PREFIX}{job}"


def handover_key(handover_id: str) -> str:
    return f"{HANDOVER_PREFIX}{handover_id}"


def job_to_json(job: Job) -> dict[str, object]:
    return {
        "job": job.job,
        "run_id": job.run_id,
        "name": job.name,
        "application_id": job.application_id,
        "task_groups": [[g.task_group, list(g.operators), g.partitions] for g in job.task_groups],
        "configuration_epoch": job.configuration_epoch,
        "desired": [[n.task_group, n.partition, worker] for n, worker in sorted(job.desired.items())],
    }


def job_of_json(value: dict[str, Any]) -> Job:
    job = value["job"]
    return Job(
        job=job,
        run_id=value["run_id"],
        name=value["name"],
        application_id=value["application_id"],
        task_groups=tuple(TaskGroup(name, tuple(ops), partitions) for name, ops, partitions in value["task_groups"]),
        configuration_epoch=value["configuration_epoch"],
        desired={VirtualNode(job, group, partition): worker for group, partition, worker in value["desired"]},
    )


def _move_to_json(move: Move) -> dict[str, object]:
    return {
        "task_group": move.node.task_group,
        "partition": move.node.partition,
        "operators": list(move.operators),
        "origin": move.origin,
        "target": move.target,
        "kind": move.kind.value,
        "bytes_to_move": move.bytes_to_move,
        "state_bytes": move.state_bytes,
    }


def _move_of_json(job: str, value: dict[str, Any]) -> Move:
    return Move(
        node=VirtualNode(job, value["task_group"], value["partition"]),
        operators=tuple(value["operators"]),
        origin=value["origin"],
        target=value["target"],
        kind=MoveKind(value["kind"]),
        bytes_to_move=value["bytes_to_move"],
        state_bytes=value["state_bytes"],
    )


def handover_to_json(handover: Handover) -> dict[str, object]:
    """Intent, marker and outcome; what is observed again after a restart is left out."""
    return {
        "handover_id": handover.handover_id,
        "job": handover.plan.job,
        "strategy": handover.plan.strategy,
        "moves": [_move_to_json(move) for move in handover.plan.moves],
        "deadline_s": handover.deadline_s,
        "started_ms": handover.started_ms,
        "phase": handover.phase.value,
        "reason": handover.reason,
        "configuration_epoch": handover.configuration_epoch,
        "marked_ms": handover.marked_ms,
        "finished_ms": handover.finished_ms,
        "confirmed_batch_id": handover.confirmed_batch_id,
        "bytes_moved": handover.bytes_moved,
        "settling": [[g.operator, g.partition] for g in sorted(handover.settling)],
    }


def handover_of_json(value: dict[str, Any], *, deadline: float) -> Handover:
    """`deadline` is monotonic seconds: that of the former process means nothing here."""
    job = value["job"]
    moves = tuple(_move_of_json(job, move) for move in value["moves"])
    phase = Phase(value["phase"])
    return Handover(
        handover_id=value["handover_id"],
        plan=Plan(job, moves, value["strategy"]),
        deadline_s=value["deadline_s"],
        deadline=deadline,
        started_ms=value["started_ms"],
        phase=phase,
        reason=value["reason"],
        configuration_epoch=value["configuration_epoch"],
        marked_ms=value["marked_ms"],
        finished_ms=value["finished_ms"],
        confirmed_batch_id=value["confirmed_batch_id"],
        bytes_moved=value["bytes_moved"],
        waiting_for=set() if phase.ended else {move.node for move in moves},
        settling={GroupId(job, operator, partition) for operator, partition in value["settling"]},
    )
