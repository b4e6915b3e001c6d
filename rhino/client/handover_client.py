"""`HandoverClient`: the handover RPCs for programs, with plain dataclasses and Rhino's exceptions."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Self

import grpc

from rhino.client.connection import manager_channel
from rhino.client.overview import JobView
from rhino.client.query_record import ForgottenJob
from rhino_core.errors import UnavailableError
from rhino_core.rpc.channel import call_sync
from rhino_core.rpc.gate import checked
from rhino_core.rpc.status import error_of
from rhino_model.archives import Archive
from rhino_model.codec import decode
from rhino_model.decisions import Decisions
from rhino_model.handovers import Action, DrainView, Explanation, Handover, MoveKind, Phase, Plan
from rhino_model.intents import Intent, Request
from rhino_model.loads import BatchLoad
from rhino_model.requests import request_to_pb, strategy_to_pb
from rhino_model.strategy import ALL_AT_ONCE, Strategy
from rhino_pb import common_pb2, handover_pb2_grpc
from rhino_pb import handover_pb2 as pb

__all__ = ["Handover", "HandoverClient", "MoveKind", "Phase", "Plan"]
DRAIN_POLL_S = 0.3
STREAM_S_MAX = 30 * 24 * 3600.0


class HandoverClient:
    """Blocking client of the handover manager at "host:port". It is a context manager and thread-safe.

    Raises UnknownError (job, virtual node, worker), UnavailableError (manager or target), AlreadyThereError,
    ConflictError (overlap), NoSpaceError, InvalidRequestError, PreconditionError.
    """

    def __init__(self, manager: str, *, timeout_s: float = 10.0) -> None:
        self._manager = manager
        self._timeout_s = timeout_s
        self._channel = manager_channel(manager)
        self._stub = handover_pb2_grpc.HandoverManagerStub(self._channel)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
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
        """Checks, plans and predicts a handover without changing anything.

        Give either `virtual_nodes` as "task group/partition" with their `target`, or an `intent`. For the intent Drain
        `job` may be empty: it then covers all running jobs.
        """
        request = request_to_pb(Request(job, tuple(virtual_nodes), target, intent=intent, strategy=strategy))
        return decode(Plan, self._call("plan a handover", self._stub.PlanHandover, request, retry=True))

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
        """Starts moving `virtual_nodes` to worker `target`, or the virtual nodes that `intent` selects.

        Returns at once. The call is not retried. `deadline_s` applies to each step.
        """
        request = request_to_pb(Request(job, tuple(virtual_nodes), target, deadline_s, intent, strategy))
        return decode(Handover, self._call("start a handover", self._stub.StartHandover, request))

    def watch(self, handover_id: str, *, timeout_s: float = 600.0) -> Iterator[Handover]:
        """Yields the status now and after each change, until the end. Raises UnavailableError after `timeout_s`."""
        doing = self._doing(f"watch handover {handover_id}")
        try:
            for message in self._stub.WatchHandover(
                pb.WatchHandoverRequest(handover_id=handover_id), timeout=timeout_s
            ):
                yield decode(Handover, checked(message, doing))
        except grpc.RpcError as error:
            raise error_of(error, doing) from error

    def wait(self, handover_id: str, *, timeout_s: float = 600.0) -> Handover:
        """Blocks until the handover has ended, and returns its final status. Raises as `watch`."""
        last = None
        for last in self.watch(handover_id, timeout_s=timeout_s):
            if last.phase.ended:
                return last
        raise UnavailableError(f"{self._doing('watch')}: the stream ended before handover {handover_id} did")

    def cancel(self, handover_id: str) -> Handover:
        """Cancels the steps that are not marked yet. Confirmed steps stand. PreconditionError after the last marker."""
        request = pb.CancelHandoverRequest(handover_id=handover_id)
        return decode(Handover, self._call(f"cancel handover {handover_id}", self._stub.CancelHandover, request))

    def drain(
        self,
        worker: str,
        *,
        cancel: bool = False,
        strategy: Strategy = ALL_AT_ONCE,
        deadline_s: float = 300.0,
        notice_s: float = 0.0,
    ) -> DrainView:
        """Marks a worker as draining and moves all virtual nodes and copies off it. The call is idempotent.

        `cancel` removes the mark. `notice_s`: the worker leaves in so many seconds, whatever happens. It is then marked
        although other workers cannot take all of its copies, and an error is about the rest.
        """
        request = pb.DrainRequest(
            worker=worker, cancel=cancel, strategy=strategy_to_pb(strategy), deadline_s=deadline_s, notice_s=notice_s
        )
        return decode(DrainView, self._call(f"drain worker {worker}", self._stub.DrainWorker, request, retry=True))

    def drain_status(self, worker: str) -> DrainView:
        """Returns whether the worker can be removed now, and the reasons if not."""
        request = pb.GetDrainRequest(worker=worker)
        return decode(DrainView, self._call(f"drain of {worker}", self._stub.GetDrain, request, retry=True))

    def wait_until_safe(self, worker: str, *, timeout_s: float = 600.0) -> DrainView:
        """Blocks until the worker can be removed. Raises UnavailableError with the blockers after `timeout_s`."""
        deadline = time.monotonic() + timeout_s
        while not (seen := self.drain_status(worker)).safe_to_remove:
            if time.monotonic() >= deadline:
                raise UnavailableError(
                    f"worker {worker} is not safe to remove after {timeout_s:g} s: {'; '.join(seen.blockers)}"
                )
            time.sleep(DRAIN_POLL_S)
        return seen

    def archive(self) -> Archive:
        """Returns how far the archive is with the queries that have run since the manager started."""
        request = pb.GetArchiveRequest()
        return decode(Archive, self._call("ask for the archive", self._stub.GetArchive, request, retry=True))

    def archive_now(self, job: str = "") -> Archive:
        """Begins to archive the newest logged batch of a query (empty: of all). PreconditionError without archive."""
        request = pb.ArchiveNowRequest(job=job)
        return decode(Archive, self._call("archive now", self._stub.ArchiveNow, request, retry=True))

    def explain(self, job: str, virtual_node: str) -> Explanation:
        """Explains the location of a virtual node and its replica groups."""
        request = pb.ExplainRequest(job=job, virtual_node=virtual_node)
        return decode(Explanation, self._call("explain", self._stub.Explain, request, retry=True))

    def decisions(self, job: str = "") -> Decisions:
        """Returns the decisions of adaptation about a job (empty: about all jobs), oldest first."""
        request = pb.ListDecisionsRequest(job=job)
        return decode(Decisions, self._call("list decisions", self._stub.ListDecisions, request, retry=True))

    def watch_load(self, job: str = "", *, timeout_s: float = STREAM_S_MAX) -> Iterator[BatchLoad]:
        """Yields the load of each batch logged by a job from now on (empty: by all jobs).

        Raises UnavailableError after `timeout_s`, and when the manager has ended. Then call again.
        """
        doing = self._doing("watch the load of batches")
        try:
            for message in self._stub.WatchLoad(pb.WatchLoadRequest(job=job), timeout=timeout_s):
                yield decode(BatchLoad, checked(message, doing))
        except grpc.RpcError as error:
            raise error_of(error, doing) from error
        raise UnavailableError(f"{doing}: the manager has ended the stream")

    def list(self, job: str = "") -> tuple[Handover, ...]:
        """Returns the handovers of a job (empty: of all jobs), oldest first."""
        request = pb.ListHandoversRequest(job=job)
        reply = self._call("list handovers", self._stub.ListHandovers, request, retry=True)
        return tuple(decode(Handover, h) for h in reply.handovers)

    def history(self, job: str = "", worker: str = "") -> tuple[Action, ...]:
        """Returns the actions of people on the cluster, oldest first: on a job or a worker (empty: on all)."""
        request = pb.ListActionsRequest(job=job, worker=worker)
        reply = self._call("list what was done", self._stub.ListActions, request, retry=True)
        return tuple(decode(Action, action) for action in reply.actions)

    def jobs(self) -> tuple[JobView, ...]:
        """Returns every query that has reported to the manager, with the locations of its virtual nodes."""
        reply = self._call("list jobs", self._stub.ListJobs, pb.ListJobsRequest(), retry=True)
        return tuple(decode(JobView, job) for job in reply.jobs)

    def forget_job(self, job: str, *, now: bool = False, dry_run: bool = False) -> ForgottenJob:
        """Forgets a query that will not run again, given by its id or unique name.

        Its state is deleted after the grace of the manager (`--forget-grace-h`), with `now` at once. Until then its
        query is refused, and `undo_forget_job` takes it back. `dry_run` changes nothing. Raises PreconditionError while
        the query may be running, and during a handover.
        """
        request = common_pb2.ForgetJobRequest(job=job, dry_run=dry_run, now=now)
        return decode(ForgottenJob, self._call(f"forget job {job}", self._stub.ForgetJob, request))

    def undo_forget_job(self, job: str) -> str:
        """Takes `forget_job` back, and returns the id of the job.

        Raises UnknownError if the job is not forgotten, and PreconditionError once its state is deleted.
        """
        request = pb.UndoForgetJobRequest(job=job)
        reply = self._call(f"take back the forgetting of job {job}", self._stub.UndoForgetJob, request)
        return str(reply.job)

    def _call(self, what: str, method: Callable[..., Any], request: Any, *, retry: bool = False) -> Any:
        """Makes a call. With `retry`, again for the time of the timeout; only for calls that may be repeated."""
        retry_for_s = self._timeout_s if retry else 0.0
        return call_sync(self._doing(what), lambda: method(request, timeout=self._timeout_s), retry_for_s=retry_for_s)

    def _doing(self, what: str) -> str:
        return f"{what} (manager at {self._manager})"
