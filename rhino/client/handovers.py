"""Handovers, plans and drains as users see them. docs/design/handover.md explains the phases."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from handover_manager.drive.states import Phase
from handover_manager.plan.move import MoveKind

__all__ = [
    "Action",
    "DrainView",
    "Explanation",
    "Handover",
    "HandoverFigures",
    "HotNode",
    "Measured",
    "Move",
    "MoveKind",
    "Phase",
    "Plan",
    "PlannedStep",
    "Prediction",
    "Step",
]


@dataclass(frozen=True, slots=True)
class Move:
    """`why`: the reason for this target, as text."""

    virtual_node: str
    origin: str
    target: str
    kind: MoveKind
    bytes_to_move: int
    state_bytes: int
    job: str = ""
    why: str = ""


@dataclass(frozen=True, slots=True)
class Prediction:
    """Durations in seconds, predicted from measurements. None: there is no suitable measurement.

    `pause_s` is the extra duration of the slowest batch under a marker, compared with a usual batch. `prepare_s` is
    given for steps only. `basis` is given for plans only, and explains the prediction as text.
    """

    pause_s: float | None = None
    total_s: float | None = None
    prepare_s: float | None = None
    basis: str = ""


NO_PREDICTION = Prediction()


@dataclass(frozen=True, slots=True)
class PlannedStep:
    """Virtual nodes that are marked and confirmed together."""

    virtual_nodes: tuple[str, ...]
    bytes_to_move: int
    prediction: Prediction


@dataclass(frozen=True, slots=True)
class HotNode:
    """A virtual node that is heavier than a worker's share of `by` (bytes, rows or time), so many times (`shares`).

    Its keys are not split. It is on `worker` after the plan, and everything else leaves that worker.
    """

    job: str
    virtual_node: str
    worker: str
    by: str
    shares: float


@dataclass(frozen=True, slots=True)
class Plan:
    """`job` is empty when virtual nodes of several jobs move. `moves` are in the order of the steps.

    `hot` has the heaviest first. It is empty for plans that do not balance, and with an older manager.
    """

    job: str
    strategy: str
    bytes_to_move: int
    moves: tuple[Move, ...]
    steps: tuple[PlannedStep, ...] = ()
    prediction: Prediction = NO_PREDICTION
    intent: str = ""
    hot: tuple[HotNode, ...] = ()


@dataclass(frozen=True, slots=True)
class Step:
    """Result of a step. `pause_s` is measured; see Prediction.

    `confirmed_batch_id` is -1 before the confirmation, and also for a query that was idle: then `reason` says so.
    """

    phase: Phase
    reason: str
    configuration_epochs: Mapping[str, int]  # by job
    marked_ms: int
    finished_ms: int
    confirmed_batch_id: int
    bytes_moved: int
    pause_s: float | None


@dataclass(frozen=True, slots=True)
class Measured:
    """Measured durations of a confirmed handover. `error` is |predicted - measured| / measured of `total_s`."""

    total_s: float
    pause_s: float | None
    error: float | None


@dataclass(frozen=True, slots=True)
class DrainView:
    """State of a drain. `blockers` are the reasons why the worker cannot be removed yet, as text.

    `virtual_nodes` and `groups` are the numbers of blocking ones. `staying` is the number of virtual nodes whose
    desired worker is this one and that no handover moves away.
    """

    worker: str
    draining: bool
    safe_to_remove: bool
    blockers: tuple[str, ...]
    virtual_nodes: int
    groups: int
    handover_id: str
    staying: int


@dataclass(frozen=True, slots=True)
class Explanation:
    """Reasons for the location of a virtual node. `reasons` are texts, the most important first."""

    job: str
    virtual_node: str
    desired_worker: str
    actual_worker: str
    reasons: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class HandoverFigures:
    """Predicted and measured figures of a handover: seconds and bytes. None: not predicted, not measured."""

    predicted_pause_s: float | None
    pause_s: float | None
    predicted_total_s: float | None
    total_s: float | None
    bytes_to_move: int
    bytes_moved: int


@dataclass(frozen=True, slots=True)
class Action:
    """Something that somebody has done to the cluster. Fields for what it does not concern are empty.

    `at_ms`: wall clock in milliseconds since the epoch. `by`: the URI in the certificate of who asked for it, or empty
    if that is not known. `outcome`: the phase of a handover that is still known, otherwise "done". `kind`, `detail` and
    `reason` are texts for people. `figures`: of a handover that is still known.
    """

    at_ms: int
    by: str
    kind: str
    job: str
    name: str
    worker: str
    handover_id: str
    detail: str
    outcome: str
    reason: str
    figures: HandoverFigures | None


@dataclass(frozen=True, slots=True)
class Handover:
    """Status of a handover. Times are wall clock in milliseconds since the epoch, or 0 if not reached yet.

    `by` is the URI in the certificate of who asked for it, or empty if that is not known.
    """

    handover_id: str
    phase: Phase
    plan: Plan
    reason: str
    configuration_epoch: int
    started_ms: int
    marked_ms: int
    finished_ms: int
    confirmed_batch_id: int
    bytes_moved: int
    waiting_for: tuple[str, ...]
    steps: tuple[Step, ...] = ()
    measured: Measured | None = None
    by: str = ""

    @property
    def duration_s(self) -> float:
        """Time from start to end; 0.0 until the handover has ended."""
        return max(self.finished_ms - self.started_ms, 0) / 1000 if self.finished_ms else 0.0

    @property
    def step(self) -> int:
        """Number of the present step, from 1. At the end, that of the last one."""
        return min(sum(step.phase.ended for step in self.steps) + 1, len(self.steps))
