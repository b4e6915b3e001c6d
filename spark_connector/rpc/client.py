"""`HandoverClient`: the handover RPCs for programs, with plain dataclasses and Rhino's exceptions."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Self

import grpc

from handover_manager.core.intents import Intent
from handover_manager.core.strategy import ALL_AT_ONCE, Strategy
from rhino.errors import UnavailableError
from rhino.rpc.channel import call_sync, sync_channel
from rhino.rpc.overview import JobView, job_view
from rhino.rpc.status import error_of
from rhino_pb import handover_pb2 as pb
from rhino_pb import handover_pb2_grpc
from spark_connector.rpc.handovers import (
    DrainView,
    Explanation,
    Handover,
    MoveKind,
    Phase,
    Plan,
    drain_of,
    explanation_of,
    handover_of,
    plan_of,
    request_to_pb,
    strategy_to_pb,
)

__all__ = ["Handover", "HandoverClient", "MoveKind", "Phase", "Plan"]
DRAIN_POLL_S = 0.3


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

    def plan(
        self,
        job: str,
        virtual_nodes: Sequence[str] = (),
        target: str = "",
        *,
        intent: Intent | None = None,
        strategy: Strategy = ALL_AT_ONCE,
    ) -> Plan:
        """Checks, plans and predicts; changes nothing. `virtual_nodes` as "task group/partition", or an `intent`.

        `job` may be empty for the intent Drain: all running ones.
        """
        request = request_to_pb(job, virtual_nodes, target, intent, strategy, 0.0)
        attempt = lambda: self._stub.PlanHandover(request, timeout=self._timeout_s)  # noqa: E731
        return plan_of(call_sync(self._doing("plan a handover"), attempt, retry_for_s=self._timeout_s))

    def start(
        self,
        job: str,
        virtual_nodes: Sequence[str] = (),
        target: str = "",
        *,
        intent: Intent | None = None,
        strategy: Strategy = ALL_AT_ONCE,
        deadline_s: float = 300.0,
    ) -> Handover:
        """Starts moving `virtual_nodes` to worker `target`, or what `intent` chooses; returns at once. Not retried.

        `deadline_s`: of each step.
        """
        request = request_to_pb(job, virtual_nodes, target, intent, strategy, deadline_s)
        attempt = lambda: self._stub.StartHandover(request, timeout=self._timeout_s)  # noqa: E731
        return handover_of(call_sync(self._doing("start a handover"), attempt))

    def watch(self, handover_id: str, *, timeout_s: float = 600.0) -> Iterator[Handover]:
        """The status now and at each change, until the handover has ended. UnavailableError after `timeout_s`."""
        doing = self._doing(f"watch handover {handover_id}")
        try:
            for message in self._stub.WatchHandover(
                pb.WatchHandoverRequest(handover_id=handover_id), timeout=timeout_s
            ):
                yield handover_of(message)
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
        """No further step is marked; confirmed ones stand. PreconditionError after the last marker."""
        request = pb.CancelHandoverRequest(handover_id=handover_id)
        attempt = lambda: self._stub.CancelHandover(request, timeout=self._timeout_s)  # noqa: E731
        return handover_of(call_sync(self._doing(f"cancel handover {handover_id}"), attempt))

    def drain(
        self, worker: str, *, cancel: bool = False, strategy: Strategy = ALL_AT_ONCE, deadline_s: float = 300.0
    ) -> DrainView:
        """Marks a worker as draining and moves everything off it; `cancel` ends the mark. Repeating it is harmless."""
        request = pb.DrainRequest(
            worker=worker, cancel=cancel, strategy=strategy_to_pb(strategy), deadline_s=deadline_s
        )
        attempt = lambda: self._stub.DrainWorker(request, timeout=self._timeout_s)  # noqa: E731
        return drain_of(call_sync(self._doing(f"drain worker {worker}"), attempt))

    def drain_status(self, worker: str) -> DrainView:
        """Whether the worker can be removed now, and what stands against it."""
        request = pb.GetDrainRequest(worker=worker)
        attempt = lambda: self._stub.GetDrain(request, timeout=self._timeout_s)  # noqa: E731
        return drain_of(call_sync(self._doing(f"drain of {worker}"), attempt, retry_for_s=self._timeout_s))

    def wait_until_safe(self, worker: str, *, timeout_s: float = 600.0) -> DrainView:
        """Blocks until the worker can be removed; UnavailableError with the blockers after `timeout_s`."""
        deadline = time.monotonic() + timeout_s
        while not (seen := self.drain_status(worker)).safe_to_remove:
            if time.monotonic() >= deadline:
                raise UnavailableError(
                    f"worker {worker} is not safe to remove after {timeout_s:g} s: {'; '.join(seen.blockers)}"
                )
            time.sleep(DRAIN_POLL_S)
        return seen

    def explain(self, job: str, virtual_node: str) -> Explanation:
        """Why a virtual node and its replica groups are where they are."""
        request = pb.ExplainRequest(job=job, virtual_node=virtual_node)
        attempt = lambda: self._stub.Explain(request, timeout=self._timeout_s)  # noqa: E731
        return explanation_of(call_sync(self._doing("explain"), attempt, retry_for_s=self._timeout_s))

    def list(self, job: str = "") -> tuple[Handover, ...]:
        """Handovers of a job (empty: of all), oldest first."""
        request = pb.ListHandoversRequest(job=job)
        attempt = lambda: self._stub.ListHandovers(request, timeout=self._timeout_s)  # noqa: E731
        reply = call_sync(self._doing("list handovers"), attempt, retry_for_s=self._timeout_s)
        return tuple(handover_of(h) for h in reply.handovers)

    def jobs(self) -> tuple[JobView, ...]:
        """Every query that has reported to the manager, with where its virtual nodes are and should be."""
        attempt = lambda: self._stub.ListJobs(pb.ListJobsRequest(), timeout=self._timeout_s)  # noqa: E731
        reply = call_sync(self._doing("list jobs"), attempt, retry_for_s=self._timeout_s)
        return tuple(job_view(job) for job in reply.jobs)

    def _doing(self, what: str) -> str:
        return f"{what} (manager at {self._manager})"
