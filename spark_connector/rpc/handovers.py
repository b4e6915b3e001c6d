"""Handovers, plans and drains as plain dataclasses, and their protobuf messages."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from handover_manager.core.intents import Drain, Intent, Rebalance, ScaleIn, ScaleOut
from handover_manager.core.strategy import Strategy
from rhino.errors import InvalidRequestError
from rhino_pb import handover_pb2 as pb


class Phase(enum.Enum):
    """Where a handover stands; see ARCHITECTURE.md, "Handover"."""

    PLANNED = "planned"
    PREPARING = "preparing"
    MARKED = "marked"
    CONFIRMED = "confirmed"
    ROLLED_BACK = "rolled_back"
    CANCELLED = "cancelled"
    REDIRECTED = "redirected"

    @property
    def ended(self) -> bool:
        return self not in (Phase.PLANNED, Phase.PREPARING, Phase.MARKED)


class MoveKind(enum.Enum):
    """DIRECT: the target holds nothing yet. CHECKPOINT_ASSISTED: it holds a replica (Madsen & Zhou, section 4)."""

    DIRECT = "direct"
    CHECKPOINT_ASSISTED = "checkpoint_assisted"


_PHASES: dict[int, Phase] = {
    pb.HANDOVER_PHASE_PLANNED: Phase.PLANNED,
    pb.HANDOVER_PHASE_PREPARING: Phase.PREPARING,
    pb.HANDOVER_PHASE_MARKED: Phase.MARKED,
    pb.HANDOVER_PHASE_CONFIRMED: Phase.CONFIRMED,
    pb.HANDOVER_PHASE_ROLLED_BACK: Phase.ROLLED_BACK,
    pb.HANDOVER_PHASE_CANCELLED: Phase.CANCELLED,
    pb.HANDOVER_PHASE_REDIRECTED: Phase.REDIRECTED,
}
_KINDS: dict[int, MoveKind] = {
    pb.MOVE_KIND_DIRECT: MoveKind.DIRECT,
    pb.MOVE_KIND_CHECKPOINT_ASSISTED: MoveKind.CHECKPOINT_ASSISTED,
}


@dataclass(frozen=True, slots=True)
class Move:
    """`why`: this target, for people."""

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
    """Seconds, told from measurements; None: nothing tells it. `pause_s`: by how much the slowest batch under a marker
    is longer than usual. `prepare_s` is of a step, `basis` (for people) of a plan."""

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
class Plan:
    """`job` is empty when virtual nodes of several jobs move; `moves` are in the order of the steps."""

    job: str
    strategy: str
    bytes_to_move: int
    moves: tuple[Move, ...]
    steps: tuple[PlannedStep, ...] = ()
    prediction: Prediction = NO_PREDICTION
    intent: str = ""


@dataclass(frozen=True, slots=True)
class Step:
    """What became of a step. `pause_s`: measured; see Prediction. `confirmed_batch_id`: -1 too when the query was idle,
    which `reason` says then."""

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
    """What a confirmed handover took. `error`: |predicted - measured| / measured, of `total_s`."""

    total_s: float
    pause_s: float | None
    error: float | None


@dataclass(frozen=True, slots=True)
class DrainView:
    """`blockers`: why the worker cannot be removed yet, for people. `virtual_nodes` and `groups`: how many of each
    block; `staying`: virtual nodes that are meant to run there and that no handover moves away."""

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
    """Why a virtual node is where it is; `reasons` for people, most important first."""

    job: str
    virtual_node: str
    desired_worker: str
    actual_worker: str
    reasons: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Handover:
    """Status of a handover. Times are wall clock in milliseconds since the epoch, 0 until reached."""

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

    @property
    def duration_s(self) -> float:
        """From start to end; 0.0 until it has ended."""
        return max(self.finished_ms - self.started_ms, 0) / 1000 if self.finished_ms else 0.0


def _optional(message: Any, name: str) -> float | None:
    return getattr(message, name) if message.HasField(name) else None


def _prediction(message: pb.Prediction) -> Prediction:
    pause_s, total_s, prepare_s = (_optional(message, name) for name in ("pause_s", "total_s", "prepare_s"))
    return Prediction(pause_s, total_s, prepare_s, message.basis)


def plan_of(message: pb.HandoverPlan) -> Plan:
    return Plan(
        job=message.job,
        strategy=message.strategy,
        bytes_to_move=message.bytes_to_move,
        moves=tuple(
            Move(m.virtual_node, m.origin, m.target, _KINDS[m.kind], m.bytes_to_move, m.state_bytes, m.job, m.why)
            for m in message.moves
        ),
        steps=tuple(
            PlannedStep(tuple(s.virtual_nodes), s.bytes_to_move, _prediction(s.prediction)) for s in message.steps
        ),
        prediction=_prediction(message.prediction),
        intent=message.intent,
    )


def _step(message: pb.StepStatus) -> Step:
    return Step(
        phase=_PHASES[message.phase],
        reason=message.reason,
        configuration_epochs=dict(message.configuration_epochs),
        marked_ms=message.marked_ms,
        finished_ms=message.finished_ms,
        confirmed_batch_id=message.confirmed_batch_id,
        bytes_moved=message.bytes_moved,
        pause_s=_optional(message, "pause_s"),
    )


def _measured(message: pb.Measured) -> Measured:
    return Measured(message.total_s, _optional(message, "pause_s"), _optional(message, "error"))


def handover_of(message: pb.HandoverStatus) -> Handover:
    return Handover(
        handover_id=message.handover_id,
        phase=_PHASES[message.phase],
        plan=plan_of(message.plan),
        reason=message.reason,
        configuration_epoch=message.configuration_epoch,
        started_ms=message.started_ms,
        marked_ms=message.marked_ms,
        finished_ms=message.finished_ms,
        confirmed_batch_id=message.confirmed_batch_id,
        bytes_moved=message.bytes_moved,
        waiting_for=tuple(message.waiting_for),
        steps=tuple(_step(step) for step in message.steps),
        measured=_measured(message.measured) if message.HasField("measured") else None,
    )


def drain_of(message: pb.DrainStatus) -> DrainView:
    return DrainView(
        worker=message.worker,
        draining=message.draining,
        safe_to_remove=message.safe_to_remove,
        blockers=tuple(message.blockers),
        virtual_nodes=message.virtual_nodes,
        groups=message.groups,
        handover_id=message.handover_id,
        staying=message.staying,
    )


def explanation_of(message: pb.ExplainReply) -> Explanation:
    return Explanation(
        message.job, message.virtual_node, message.desired_worker, message.actual_worker, tuple(message.reasons)
    )


def request_to_pb(
    job: str,
    virtual_nodes: Sequence[str],
    target: str,
    intent: Intent | None,
    strategy: Strategy,
    deadline_s: float,
) -> pb.HandoverRequest:
    """Raises InvalidRequestError when both or neither of `intent` and virtual nodes are given."""
    if (intent is None) == (not virtual_nodes):
        raise InvalidRequestError("a handover takes either virtual nodes and their target, or an intent")
    request = pb.HandoverRequest(
        job=job, virtual_nodes=virtual_nodes, target=target, deadline_s=deadline_s, strategy=strategy_to_pb(strategy)
    )
    match intent:
        case Drain(worker):
            request.drain.worker = worker
        case Rebalance(by):
            request.rebalance.by = by.value
        case ScaleOut(workers, by):
            request.scale_out.CopyFrom(pb.ScaleOutIntent(workers=workers, by=by.value))
        case ScaleIn(workers):
            request.scale_in.workers.extend(workers)
    return request


def strategy_to_pb(strategy: Strategy) -> pb.Strategy:
    return pb.Strategy(
        kind=strategy.kind.value,
        batch_size=strategy.batch_size,
        gap_s=strategy.gap_s,
        gap_batches=strategy.gap_batches,
        start_at_ms=strategy.start_at_ms,
        max_transfers=strategy.max_transfers,
    )
