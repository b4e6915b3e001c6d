"""Plans, handovers and drains. docs/design/handover.md explains the phases."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from rhino_core.ids import GroupId, VirtualNode
from rhino_core.planning.goals import Weight
from rhino_core.records import Record
from rhino_model.places import Computed
from rhino_model.strategy import ALL_AT_ONCE, Strategy


class Phase(enum.Enum):
    """The state of a step as users see it. The phase of a handover is the phase of its first unended step."""

    PLANNED = "planned"
    PREPARING = "preparing"  # the targets become members and catch up
    MARKED = "marked"  # the desired locations have changed
    CONFIRMED = "confirmed"  # the targets wrote a logged batch, or will write the next one of an idle query
    ROLLED_BACK = "rolled_back"
    CANCELLED = "cancelled"
    REDIRECTED = "redirected"  # a target was lost after the marker: other holders took over

    @property
    def ended(self) -> bool:
        return self not in (Phase.PLANNED, Phase.PREPARING, Phase.MARKED)


class MoveKind(enum.Enum):
    """The share of the state that the target has already.

    DIRECT: the target stores nothing yet. CHECKPOINT_ASSISTED: it stores a replica or part of one, and receives the
    rest (Madsen & Zhou, section 4).
    """

    DIRECT = "direct"
    CHECKPOINT_ASSISTED = "checkpoint_assisted"


def groups_of(node: VirtualNode, operators: Iterable[int]) -> tuple[GroupId, ...]:
    """The replica groups of a virtual node: one for each operator of its task group."""
    return tuple(GroupId(node.job, operator, node.partition) for operator in operators)


def _node_of(message: Any) -> VirtualNode:
    task_group, partition = message.virtual_node.split("/")
    return VirtualNode(message.job, int(task_group), int(partition))


class OfNode:
    """The job and the name of `node`, as on the wire."""

    __slots__ = ()
    node: VirtualNode

    @property
    def job(self) -> str:
        return self.node.job

    @property
    def virtual_node(self) -> str:
        return self.node.name


@dataclass(frozen=True, slots=True)
class Move(OfNode, Record):
    """The move of one virtual node from `origin` to `target` (worker ids).

    `operators`: those of its task group. `bytes_to_move`: the bytes missing at the target. `why` gives the reason for
    the target, for people. Origin and target are the same if the virtual node is desired there already, but other
    workers own some of its groups. The move then brings these groups there too.
    """

    node: Annotated[VirtualNode, Computed(_node_of)]
    operators: tuple[int, ...]
    origin: str
    target: str
    kind: MoveKind
    bytes_to_move: int
    state_bytes: int
    why: str = ""

    def groups(self) -> tuple[GroupId, ...]:
        return groups_of(self.node, self.operators)


@dataclass(frozen=True, slots=True)
class Prediction(Record):
    """Durations in seconds, predicted from measurements. None: there is no suitable measurement.

    `pause_s` is the extra duration of the slowest batch under a marker, compared with a usual batch. `total_s` is the
    duration of a step from its turn to its confirmation, or of the whole plan. `prepare_s` is given for steps only: the
    time until the targets have everything. `basis` is given for plans only, and explains the prediction as text.
    """

    pause_s: float | None = None
    total_s: float | None = None
    prepare_s: float | None = None
    basis: str = ""


NO_PREDICTION = Prediction()
UNKNOWN = Prediction(basis="nothing measured yet")  # of a plan


@dataclass(frozen=True, slots=True)
class PlannedStep(Record):
    """Moves, marked and confirmed together."""

    moves: tuple[Move, ...]
    prediction: Prediction = NO_PREDICTION

    @property
    def bytes_to_move(self) -> int:
        return sum(move.bytes_to_move for move in self.moves)

    @property
    def virtual_nodes(self) -> tuple[str, ...]:
        return tuple(move.virtual_node for move in self.moves)


@dataclass(frozen=True, slots=True)
class HotNode(OfNode, Record):
    """A virtual node heavier than a worker's share of `by`. `shares`: how many times.

    Its keys are not split. It is on `worker` after the plan, and everything else leaves this worker.
    """

    node: Annotated[VirtualNode, Computed(_node_of)]
    worker: str
    by: Weight
    shares: float

    def __str__(self) -> str:
        return (
            f"virtual node {self.node.name} has {self.shares:.2f} x a worker's share of {self.by.value}: its keys are "
            f"not split, so the others leave {self.worker}"
        )


@dataclass(frozen=True, slots=True)
class Plan(Record):
    """Moves in steps. Each step is marked and confirmed as a whole, after the step before.

    `hot`: virtual nodes heavier than a worker's share, the heaviest first, as far as the plan is to balance.
    """

    steps: tuple[PlannedStep, ...]
    strategy: Strategy = ALL_AT_ONCE
    intent: str = ""
    prediction: Prediction = UNKNOWN
    hot: tuple[HotNode, ...] = ()

    @property
    def moves(self) -> tuple[Move, ...]:
        return tuple(move for step in self.steps for move in step.moves)

    @property
    def jobs(self) -> tuple[str, ...]:
        return tuple(sorted({move.job for move in self.moves}))

    @property
    def bytes_to_move(self) -> int:
        return sum(step.bytes_to_move for step in self.steps)


@dataclass(frozen=True, slots=True)
class Step:
    """Result of a step. `pause_s` is measured; see Prediction.

    `confirmed_batch_id` is -1 before the confirmation, and also for an idle query: then `reason` says so.
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

    `virtual_nodes` and `groups` are the numbers of blocking ones. `staying` is the number of virtual nodes with this
    desired worker and without a handover away from it. `leaves_in_s`: seconds until a worker with notice leaves,
    0 from then on. None: it waits.
    """

    worker: str
    draining: bool
    blockers: tuple[str, ...]
    virtual_nodes: int
    groups: int
    handover_id: str
    staying: int
    leaves_in_s: float | None = None

    @property
    def safe_to_remove(self) -> bool:
        return self.draining and not self.blockers

    @property
    def headline(self) -> str:
        """The state in one line, for people."""
        leaves = "" if self.leaves_in_s is None else f" leaves in {self.leaves_in_s:.0f} s"
        return f"worker {self.worker}{leaves}: {'' if self.safe_to_remove else 'not '}safe to remove"


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
    """One action on the cluster. Fields that do not concern it are empty.

    `at_ms`: wall clock in milliseconds since the epoch. `by`: the URI in the caller's certificate, or empty if it is
    not known. `outcome`: the phase of a handover still known, otherwise "done". `kind`, `detail` and `reason` are texts
    for people. `figures`: of a handover still known.
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

    `by` is the URI in the caller's certificate, or empty if it is not known.
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
        """Number of the present step, from 1. At the end, the number of the last one."""
        return min(sum(step.phase.ended for step in self.steps) + 1, len(self.steps))
