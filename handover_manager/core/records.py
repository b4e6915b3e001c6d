"""Journal records of jobs and handovers: JSON values and back."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from handover_manager.core.handover import Handover, make_steps
from handover_manager.core.job import Job
from handover_manager.core.move import Move, MoveKind
from handover_manager.core.plan import Plan
from handover_manager.core.predict import Prediction, StepPrediction
from handover_manager.core.step import Phase, Step
from handover_manager.core.strategy import Kind, Strategy
from handover_manager.core.view import TaskGroup
from rhino.ids import GroupId, VirtualNode

JOB_PREFIX = "handover_manager/job/"
HANDOVER_PREFIX = "handover_manager/handover/"
STEP_PREFIX = "handover_manager/step/"


def job_key(job: str) -> str:
    return f"{JOB_PREFIX}{job}"


def handover_key(handover_id: str) -> str:
    return f"{HANDOVER_PREFIX}{handover_id}"


def step_key(handover_id: str, number: int) -> str:
    """`number` from 1."""
    return f"{STEP_PREFIX}{handover_id}/{number}"


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
        "job": move.node.job,
        "task_group": move.node.task_group,
        "partition": move.node.partition,
        "operators": list(move.operators),
        "origin": move.origin,
        "target": move.target,
        "kind": move.kind.value,
        "bytes_to_move": move.bytes_to_move,
        "state_bytes": move.state_bytes,
        "why": move.why,
    }


def _move_of_json(value: dict[str, Any]) -> Move:
    return Move(
        node=VirtualNode(value["job"], value["task_group"], value["partition"]),
        operators=tuple(value["operators"]),
        origin=value["origin"],
        target=value["target"],
        kind=MoveKind(value["kind"]),
        bytes_to_move=value["bytes_to_move"],
        state_bytes=value["state_bytes"],
        why=value["why"],
    )


def _plan_to_json(plan: Plan) -> dict[str, object]:
    strategy, prediction = plan.strategy, plan.prediction
    return {
        "intent": plan.intent,
        "strategy": {**dataclasses.asdict(strategy), "kind": strategy.kind.value},
        "steps": [[_move_to_json(move) for move in step] for step in plan.steps],
        "prediction": dataclasses.asdict(prediction),
    }


def _plan_of_json(value: dict[str, Any]) -> Plan:
    strategy, prediction = value["strategy"], value["prediction"]
    return Plan(
        steps=tuple(tuple(_move_of_json(move) for move in step) for step in value["steps"]),
        strategy=Strategy(**{**strategy, "kind": Kind(strategy["kind"])}),
        intent=value["intent"],
        prediction=Prediction(**{**prediction, "steps": tuple(StepPrediction(**s) for s in prediction["steps"])}),
    )


def step_to_json(step: Step) -> dict[str, object]:
    """Marker and outcome; what is observed again after a restart is left out."""
    return {
        "phase": step.phase.value,
        "reason": step.reason,
        "configuration_epochs": dict(step.configuration_epochs),
        "marked_ms": step.marked_ms,
        "finished_ms": step.finished_ms,
        "confirmed_batch_id": step.confirmed_batch_id,
        "bytes_moved": step.bytes_moved,
        "pause_s": step.pause_s,
        "redirected": [[n.job, n.task_group, n.partition] for n in sorted(step.redirected)],
        "settling": [[g.job, g.operator, g.partition] for g in sorted(step.settling)],
        "unwinding": [[g.job, g.operator, g.partition] for g in sorted(step.unwinding)],
    }


def _restore_step(step: Step, value: dict[str, Any]) -> None:
    step.phase = Phase(value["phase"])
    step.reason = value["reason"]
    step.configuration_epochs = value["configuration_epochs"]
    step.marked_ms, step.finished_ms = value["marked_ms"], value["finished_ms"]
    step.confirmed_batch_id, step.bytes_moved = value["confirmed_batch_id"], value["bytes_moved"]
    step.pause_s = value["pause_s"]
    step.redirected = {VirtualNode(*name) for name in value["redirected"]}
    step.settling = {GroupId(*name) for name in value["settling"]}
    step.unwinding = {GroupId(*name) for name in value.get("unwinding", ())}  # older records lack it
    step.waiting_for = set() if step.phase.ended else step.nodes - step.redirected
    step.noted = value


def handover_to_json(handover: Handover) -> dict[str, object]:
    """Intent and end. Each step has its own record, so that one of many steps costs no more to write."""
    return {
        "handover_id": handover.handover_id,
        "plan": _plan_to_json(handover.plan),
        "deadline_s": handover.deadline_s,
        "started_ms": handover.started_ms,
        "finished_ms": handover.finished_ms,
    }


def handover_of_json(value: dict[str, Any], records: Mapping[str, Any]) -> Handover:
    """`records`: those of steps, by `step_key`; a step without one has not begun.

    Monotonic times of the former process mean nothing here: `Handovers.restart` sets those that matter.
    """
    plan = _plan_of_json(value["plan"])
    handover = Handover(
        handover_id=value["handover_id"],
        plan=plan,
        deadline_s=value["deadline_s"],
        started_ms=value["started_ms"],
        steps=make_steps(value["handover_id"], plan),
        finished_ms=value["finished_ms"],
    )
    for number, step in enumerate(handover.steps, 1):
        record = records.get(step_key(handover.handover_id, number))
        if record is not None:
            _restore_step(step, record)
        else:
            step.waiting_for = step.nodes
    handover.noted_ms = handover.finished_ms
    return handover
