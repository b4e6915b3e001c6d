"""`HandoverClient`: the handover RPCs for programs, with plain dataclasses and Rhino's exceptions."""

from __future__ import annotations

import enum
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import grpc

from rhino.errors import UnavailableError
from rhino.rpc.channel import call_sync, sync_channel
from rhino.rpc.overview import JobView, job_view
from rhino.rpc.status import error_of
from rhino_pb import handover_pb2 as pb
from rhino_pb import handover_pb2_grpc


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
    virtual_node: str
    origin: str
    target: str
    kind: MoveKind
    bytes_to_move: int
    state_bytes: int


@dataclass(frozen=True, slots=True)
class Plan:
    job: str
    strategy: str
    bytes_to_move: int
    moves: tuple[Move, ...]


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

    @property
    def duration_s(self) -> float:
        """From start to end; 0.0 until it has ended."""
        return max(self.finished_ms - self.started_ms, 0) / 1000 if self.finished_ms else 0.0


def _plan(message: pb.HandoverPlan) -> Plan:
    moves = tuple(
        Move(m.virtual_node, m.origin, m.target, _KINDS[m.kind], m.bytes_to_move, m.state_bytes) for m in message.moves
    )
    return Plan(message.job, message.strategy, message.bytes_to_move, moves)


def _handover(message: pb.HandoverStatus) -> Handover:
    return Handover(
        handover_id=message.handover_id,
        phase=_PHASES[message.phase],
        plan=_plan(message.plan),
        reason=message.reason,
        configuration_epoch=message.configuration_epoch,
        started_ms=message.started_ms,
        marked_ms=message.marked_ms,
        finished_ms=message.finished_ms,
        confirmed_batch_id=message.confirmed_batch_id,
        bytes_moved=message.bytes_moved,
        waiting_for=tuple(message.waiting_for),
    )


class HandoverClient:
    """Blocking client of the handover manager at "host:port". Usable as a context manager; safe across threads.

    Errors: UnknownError (job, virtual node, worker), UnavailableError (manager or target), AlreadyThereError,
    ConflictError (overlap), NoSpaceError, InvalidRequestError, PreconditionError.
    """

    def __init__(self, manager: str, *, timeout_s: float = 10.0) -> None:
        self._manager = manager
        self._timeout_s = timeout_s
        self._channel = sync_channel(manager)
        self._stub = handover_pb2_grpc.HandoverManagerStub(self._channel)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._channel.close()

    def plan(self, job: str, virtual_nodes: Sequence[str], target: str) -> Plan:
        """Checks and plans; changes nothing. `virtual_nodes` as "task group/partition"."""
        request = pb.HandoverRequest(job=job, virtual_nodes=virtual_nodes, target=target)
        attempt = lambda: self._stub.PlanHandover(request, timeout=self._timeout_s)  # noqa: E731
        return _plan(call_sync(self._doing("plan a handover"), attempt, retry_for_s=self._timeout_s))

    def start(self, job: str, virtual_nodes: Sequence[str], target: str, *, deadline_s: float = 300.0) -> Handover:
        """Starts moving `virtual_nodes` to worker `target`; returns at once. Not retried."""
        request = pb.HandoverRequest(job=job, virtual_nodes=virtual_nodes, target=target, deadline_s=deadline_s)
        attempt = lambda: self._stub.StartHandover(request, timeout=self._timeout_s)  # noqa: E731
        return _handover(call_sync(self._doing("start a handover"), attempt))

    def watch(self, handover_id: str, *, timeout_s: float = 600.0) -> Iterator[Handover]:
        """The status now and at each change, until the handover has ended. UnavailableError after `timeout_s`."""
        doing = self._doing(f"watch handover {handover_id}")
        try:
            for message in self._stub.WatchHandover(
                pb.WatchHandoverRequest(handover_id=handover_id), timeout=timeout_s
            ):
                yield _handover(message)
        except grpc.RpcError as error:
            raise error_of(error, doing) from error

    def wait(self, handover_id: str, *, timeout_s: float = 600.0) -> Handover:
        """Blocks until the handover has ended and returns its last status."""
        last = None
        for last in self.watch(handover_id, timeout_s=timeout_s):
            if last.phase.ended:
                return last
        raise UnavailableError(f"{self._doing('watch')}: the stream ended before handover {handover_id} did")

    def cancel(self, handover_id: str) -> Handover:
        """Rolls back a handover that has not reached its marker; PreconditionError after it."""
        request = pb.CancelHandoverRequest(handover_id=handover_id)
        attempt = lambda: self._stub.CancelHandover(request, timeout=self._timeout_s)  # noqa: E731
        return _handover(call_sync(self._doing(f"cancel handover {handover_id}"), attempt))

    def list(self, job: str = "") -> tuple[Handover, ...]:
        """Handovers of a job (empty: of all), oldest first."""
        request = pb.ListHandoversRequest(job=job)
        attempt = lambda: self._stub.ListHandovers(request, timeout=self._timeout_s)  # noqa: E731
        reply = call_sync(self._doing("list handovers"), attempt, retry_for_s=self._timeout_s)
        return tuple(_handover(h) for h in reply.handovers)

    def jobs(self) -> tuple[JobView, ...]:
        """Every query that has reported to the manager, with where its virtual nodes are and should be."""
        attempt = lambda: self._stub.ListJobs(pb.ListJobsRequest(), timeout=self._timeout_s)  # noqa: E731
        reply = call_sync(self._doing("list jobs"), attempt, retry_for_s=self._timeout_s)
        return tuple(job_view(job) for job in reply.jobs)

    def _doing(self, what: str) -> str:
        return f"{what} (manager at {self._manager})"
