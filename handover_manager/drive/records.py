"""Journal records of handovers and their steps.

Each step has its own record, so a change of one step does not rewrite all of them.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass

from handover_manager.drive.handover import DrivenHandover, make_steps
from handover_manager.drive.states import state_of
from handover_manager.drive.step import DrivenStep, Marker, Outcome
from rhino_core.ids import GroupId, VirtualNode
from rhino_core.planning.goals import Weight
from rhino_core.records import Record
from rhino_model.handovers import MoveKind, Phase, Plan
from rhino_model.strategy import Kind

HANDOVER_PREFIX = "handover_manager/handover/"
STEP_PREFIX = "handover_manager/step/"
# They replace values that only a newer version knows. The strategy is for display: the record of a plan has its steps.
SUBSTITUTES: Mapping[type[enum.Enum], enum.Enum] = {
    MoveKind: MoveKind.CHECKPOINT_ASSISTED,
    Kind: Kind.ALL_AT_ONCE,
    Weight: Weight.BYTES,  # of a hot virtual node, for display
}
NO_BATCH = -1  # on disk only


@dataclass(frozen=True, slots=True)
class HandoverRecord(Record):
    """Intent and end. `finished_ms` is 0 before the end."""

    handover_id: str
    plan: Plan
    deadline_s: float
    started_ms: int
    finished_ms: int
    by: str


@dataclass(frozen=True, slots=True)
class StepRecord(Record):
    """Marker and outcome of a step. Leaves out facts that can be observed again after a restart."""

    phase: Phase
    reason: str
    configuration_epochs: dict[str, int]  # empty before the marker
    marked_ms: int
    finished_ms: int
    confirmed_batch_id: int  # or NO_BATCH
    bytes_moved: int
    pause_s: float | None
    redirected: tuple[VirtualNode, ...]
    settling: tuple[GroupId, ...]
    unwinding: tuple[GroupId, ...]


def handover_key(handover_id: str) -> str:
    return f"{HANDOVER_PREFIX}{handover_id}"


def step_key(handover_id: str, number: int) -> str:
    """`number` counts from 1."""
    return f"{STEP_PREFIX}{handover_id}/{number}"


def record_of_handover(handover: DrivenHandover) -> HandoverRecord:
    return HandoverRecord(
        handover_id=handover.handover_id,
        plan=handover.plan,
        deadline_s=handover.deadline_s,
        started_ms=handover.started_ms,
        finished_ms=handover.finished_ms or 0,
        by=handover.by,
    )


def handover_of_record(record: HandoverRecord, steps: Mapping[str, StepRecord]) -> DrivenHandover:
    """Restores a handover. `steps` has the records of steps by `step_key`. A step without a record has not begun.

    Monotonic times of the former process are meaningless here. `Execution.restart` sets the important ones.
    """
    handover = DrivenHandover(
        handover_id=record.handover_id,
        plan=record.plan,
        deadline_s=record.deadline_s,
        started_ms=record.started_ms,
        steps=make_steps(record.handover_id, record.plan),
        finished_ms=record.finished_ms or None,
        by=record.by,
    )
    for number, step in enumerate(handover.steps, 1):
        if found := steps.get(step_key(record.handover_id, number)):
            _restore_step(step, found)
    return handover


def record_of_step(step: DrivenStep) -> StepRecord:
    marker, outcome = step.marker, step.outcome
    return StepRecord(
        phase=step.phase,
        reason=step.reason,
        configuration_epochs=dict(step.configuration_epochs),
        marked_ms=marker.set_ms if marker is not None else 0,
        finished_ms=outcome.finished_ms if outcome is not None else 0,
        confirmed_batch_id=NO_BATCH if outcome is None or outcome.batch_id is None else outcome.batch_id,
        bytes_moved=step.bytes_moved,
        pause_s=outcome.pause_s if outcome is not None else None,
        redirected=tuple(sorted(step.redirected)),
        settling=tuple(sorted(step.settling)),
        unwinding=tuple(sorted(step.unwinding)),
    )


def _restore_step(step: DrivenStep, record: StepRecord) -> None:
    step.settling, step.unwinding = set(record.settling), set(record.unwinding)
    step.state = state_of(record.phase, clean=not step.settling and not step.unwinding)
    step.reason, step.bytes_moved = record.reason, record.bytes_moved
    if record.configuration_epochs:
        step.marker = Marker(dict(record.configuration_epochs), record.marked_ms, None, set(record.redirected))
    if record.phase.ended:
        batch_id = record.confirmed_batch_id
        step.outcome = Outcome(record.finished_ms, None if batch_id == NO_BATCH else batch_id, record.pause_s)
    step.waiting_for = set() if record.phase.ended else step.nodes - step.redirected
