"""The HandoverManager service: handover calls and driver sessions around the core."""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
import uuid
from collections.abc import AsyncIterator, Callable
from typing import Any, TypeAlias

import grpc.aio

from handover_manager import events as ev
from handover_manager.adapt.policy import Policy
from handover_manager.archive.archiver import Archiver
from handover_manager.drive.handover import DrivenHandover
from handover_manager.machine import USUAL, HandoverCore
from handover_manager.service import messages
from handover_manager.service.cluster import Cluster
from handover_manager.service.driver_messages import command_of, event_of
from handover_manager.service.runtime import Runtime
from handover_manager.service.session import Pace, Session
from handover_manager.service.writers import WriterFinder
from rhino_core.descriptors import LogLimits
from rhino_core.errors import InvalidRequestError, TooFewWorkersError
from rhino_core.failpoints import hit
from rhino_core.journal import Journal
from rhino_core.rpc import convert
from rhino_core.rpc.server import Server
from rhino_core.security.identity import CALLER
from rhino_core.security.transport import PLAIN, Transport
from rhino_core.turns import Turns
from rhino_core.version import check_protocol
from rhino_model.archives import Archive
from rhino_model.codec import encode
from rhino_model.intents import Drain, Request
from rhino_model.requests import request_of, strategy_of
from rhino_pb import common_pb2, handover_pb2_grpc
from rhino_pb import handover_pb2 as pb

log = logging.getLogger(__name__)
SERVICE_NAME = "rhino.v1.HandoverManager"
WORKERS_WAIT_S = 10.0  # time for enough workers to register when a driver says hello

Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"
Requests = AsyncIterator[pb.DriverEvent]


class HandoverService(handover_pb2_grpc.HandoverManagerServicer):
    """Attach to a server, start the server, then `run`. The server turns RhinoErrors into status codes.

    Needs a running event loop.
    """

    def __init__(
        self,
        journal: Journal,
        cluster: Cluster,
        *,
        forget_grace_s: float,
        transport: Transport = PLAIN,
        policy: Policy = USUAL,
        turns: Turns | None = None,
        archiver: Archiver | None = None,
    ) -> None:
        """`transport`: for questions to sidecars. `policy`: of adaptation. `turns`: of all services here."""
        self._turns = turns or Turns()
        finder = WriterFinder(transport, self._turns)
        self._runtime = Runtime(journal, cluster, finder, forget_grace_s, policy, self._turns, archiver)
        self._numbers = itertools.count(1)
        self._pace, self._slowed = Pace(), LogLimits(time.monotonic)

    def attach(self, server: Server) -> None:
        server.add(handover_pb2_grpc.add_HandoverManagerServicer_to_server, self, SERVICE_NAME)

    async def run(self) -> None:
        """Follows the cluster and drives handovers until cancelled."""
        await self._runtime.run()

    @property
    def core(self) -> HandoverCore:
        """The core. Read it on the loop's thread only."""
        return self._runtime.core

    def archive(self) -> Archive:
        """How far the archive is. Call it on the loop's thread only."""
        return self._runtime.archive_status()

    def subscribe(self, listener: Callable[[DrivenHandover], None]) -> None:
        """Calls `listener` whenever a handover has changed."""
        self._runtime.subscribe(listener)

    async def PlanHandover(self, request: pb.HandoverRequest, context: Context) -> pb.HandoverPlan:
        return encode(pb.HandoverPlan, self._runtime.plan(request_of(request)))

    async def StartHandover(self, request: pb.HandoverRequest, context: Context) -> pb.HandoverStatus:
        return messages.handover_to_pb(self._runtime.start(_new_id(), request_of(request), _who()))

    async def DrainWorker(self, request: pb.DrainRequest, context: Context) -> pb.DrainStatus:
        self._runtime.drain_state(request.worker)  # refuses an unknown worker
        if request.cancel:
            self._runtime.end_drain(request.worker, _who())
        else:
            drain, strategy = Drain(request.worker), strategy_of(request.strategy)
            wanted = Request("", deadline_s=request.deadline_s, intent=drain, strategy=strategy)
            self._runtime.drain(_new_id(), wanted, drain, _who(), request.notice_s)
        return encode(pb.DrainStatus, self._runtime.drain_state(request.worker))

    async def GetDrain(self, request: pb.GetDrainRequest, context: Context) -> pb.DrainStatus:
        return encode(pb.DrainStatus, self._runtime.drain_state(request.worker))

    async def Explain(self, request: pb.ExplainRequest, context: Context) -> pb.ExplainReply:
        self._runtime.refresh_view()
        return encode(pb.ExplainReply, self._runtime.core.explain(request.job, request.virtual_node))

    async def ListDecisions(self, request: pb.ListDecisionsRequest, context: Context) -> pb.ListDecisionsReply:
        adaptation = self._runtime.core.adaptation
        job = self._runtime.core.jobs.find(request.job).job if request.job else ""
        found = [encode(pb.AdaptationDecision, one) for one in adaptation.decisions.all() if job in ("", one.job)]
        return pb.ListDecisionsReply(mode=adaptation.policy.mode.value, decisions=found)

    async def WatchLoad(self, request: pb.WatchLoadRequest, context: Context) -> AsyncIterator[pb.BatchLoad]:
        job = self._runtime.core.jobs.find(request.job).job if request.job else ""
        async for load in self._runtime.loads.watch(job):
            yield load

    async def GetArchive(self, request: pb.GetArchiveRequest, context: Context) -> pb.ArchiveStatus:
        return encode(pb.ArchiveStatus, self._runtime.archive_status())

    async def ArchiveNow(self, request: pb.ArchiveNowRequest, context: Context) -> pb.ArchiveStatus:
        self._runtime.archive_now(request.job)
        return encode(pb.ArchiveStatus, self._runtime.archive_status())

    async def WatchHandover(
        self, request: pb.WatchHandoverRequest, context: Context
    ) -> AsyncIterator[pb.HandoverStatus]:
        async for status in self._runtime.watch(request.handover_id):
            yield status

    async def CancelHandover(self, request: pb.CancelHandoverRequest, context: Context) -> pb.HandoverStatus:
        self._runtime.apply(ev.CancelRequested(request.handover_id, _who()))
        return messages.handover_to_pb(self._runtime.core.handovers.find(request.handover_id))

    async def ListHandovers(self, request: pb.ListHandoversRequest, context: Context) -> pb.ListHandoversReply:
        self._runtime.refresh_view()
        core = self._runtime.core
        job = core.jobs.find(request.job).job if request.job else ""
        found = [h for h in core.handovers.all() if not job or job in h.plan.jobs]
        return pb.ListHandoversReply(handovers=[messages.handover_to_pb(h) for h in found])

    async def ListActions(self, request: pb.ListActionsRequest, context: Context) -> pb.ListActionsReply:
        self._runtime.refresh_view()
        core = self._runtime.core
        found = [a for a in core.history.all() if not request.job or request.job in (a.job, a.name)]
        found = [a for a in found if not request.worker or a.worker == request.worker]
        return pb.ListActionsReply(actions=[messages.action_to_pb(a, core.handovers) for a in found])

    async def ListJobs(self, request: pb.ListJobsRequest, context: Context) -> pb.ListJobsReply:
        core, now = self._runtime.core, asyncio.get_running_loop().time()
        scaling = core.adaptation.scaling
        jobs = [messages.job_to_pb(job, core.view, scaling.wanted(job.job, now)) for job in core.jobs.all()]
        for message, job in zip(jobs, core.jobs.all(), strict=True):
            message.may_return = core.may_return(job, now=now)
            messages.set_activity(message, job, core.executors(job), now)
        return pb.ListJobsReply(jobs=messages.with_deletions(jobs, core.deletions.all(), now))

    async def ForgetJob(self, request: common_pb2.ForgetJobRequest, context: Context) -> common_pb2.ForgetJobReply:
        return self._runtime.forget_job(request.job, _who(), dry_run=request.dry_run, at_once=request.now)

    async def UndoForgetJob(self, request: pb.UndoForgetJobRequest, context: Context) -> pb.UndoForgetJobReply:
        return pb.UndoForgetJobReply(job=self._runtime.undo_forget_job(request.job, _who()))

    async def ForgetWorker(
        self, request: common_pb2.ForgetWorkerRequest, context: Context
    ) -> common_pb2.ForgetWorkerReply:
        return self._runtime.forget_worker(request.worker_id, _who(), dry_run=request.dry_run)

    async def MoveCheckpoint(self, request: pb.MoveCheckpointRequest, context: Context) -> pb.MoveCheckpointReply:
        self._runtime.apply(ev.CheckpointMoved(request.job, request.location, _who()))
        job = self._runtime.core.jobs.find(request.job)
        return pb.MoveCheckpointReply(job=job.job, location=job.location)

    async def SetJobOwner(self, request: pb.SetJobOwnerRequest, context: Context) -> pb.SetJobOwnerReply:
        self._runtime.apply(ev.OwnerSet(request.job, request.owner, _who()))
        job = self._runtime.core.jobs.find(request.job)
        return pb.SetJobOwnerReply(job=job.job, owner=job.owner)

    async def DriverSession(self, request_iterator: Requests, context: Context) -> AsyncIterator[pb.DriverCommand]:
        requests = aiter(request_iterator)
        hello = await anext(requests, pb.DriverEvent())
        if hello.WhichOneof("event") != "hello":
            raise InvalidRequestError("a driver session begins with DriverHello")
        check_protocol(f"driver {hello.hello.application_id!r}", hello.hello.protocol, here="the manager")
        await self._check_workers(hello.hello)
        driver = CALLER.get()
        session = Session(next(self._numbers), hello.hello, uuid.uuid4().hex, driver.name if driver else "")
        generation = self._runtime.generation
        caller = session.principal or context.peer().rpartition(":")[0]
        with self._runtime.session(session):
            yield pb.DriverCommand(
                welcome=pb.DriverWelcome(
                    generation=generation, token=session.token, archives=self._runtime.archiver is not None
                )
            )
            reader = asyncio.create_task(self._read(requests, session, caller))
            try:
                async for effect in session.effects():
                    hit("handover.push.before")
                    yield command_of(effect, generation)
                    hit("handover.push.after")
                if not session.replaced:
                    await reader
            finally:
                reader.cancel()

    async def _read(self, requests: Requests, session: Session, caller: str) -> None:
        try:
            async for event in requests:
                await self._wait_for_new(event, caller)
                if event.HasField("checkpoint"):
                    self._runtime.checkpoint_read(event.checkpoint, session.number)
                    continue
                long = event.HasField("batch_logged")
                if long:
                    await self._turns.take()
                found = event_of(event, session.number, session.hello, session.principal)
                if long:
                    await self._turns.take()
                self._handle(found)
        finally:
            session.close()

    async def _wait_for_new(self, event: pb.DriverEvent, caller: str) -> None:
        """Reads no further while a driver names unknown queries too fast."""
        started = event.query_started if event.HasField("query_started") else None
        if started and not started.unplanned and self._runtime.core.jobs.get(started.job) is None:
            wait_s = self._pace.wait_s(caller, asyncio.get_running_loop().time())
            if wait_s and (left_out := self._slowed.due(caller)) is not None:
                extra = {"from": caller, "wait_s": round(wait_s, 1), "left_out": left_out}
                log.warning("a driver names too many new queries, and has to wait", extra=extra)
            await asyncio.sleep(wait_s)

    def _handle(self, event: ev.Event) -> None:
        if isinstance(event, ev.BatchLogged):
            self._runtime.batch_logged(event)
        else:
            self._runtime.apply(event)

    async def _check_workers(self, hello: pb.DriverHello) -> None:
        """Waits until enough workers for the settings are known. Raises TooFewWorkersError with a way out.

        Lost workers count: a driver may start while a worker is down, and a running driver may then meet a new manager.
        Its commits are as safe as in a query without such an interruption.
        """
        factor = convert.settings_of(hello.settings).replication_factor
        deadline = asyncio.get_running_loop().time() + WORKERS_WAIT_S
        while True:
            self._runtime.refresh_view()
            workers = self._runtime.core.view.workers
            live = sorted(w for w, seen in workers.items() if seen.live)
            few = f"replication factor {factor} needs {factor + 1} live workers, {len(live)} are live"
            few += f"{': ' if live else ''}{', '.join(live)}"
            if len(workers) > factor:
                if len(live) <= factor:
                    log.warning(few, extra={"application": hello.application_id, "known": ", ".join(sorted(workers))})
                return
            try:
                async with asyncio.timeout_at(deadline):
                    await self._runtime.change()
            except TimeoutError:
                raise TooFewWorkersError(f"{few}; start more sidecars or lower the replication factor") from None


def _new_id() -> str:
    return uuid.uuid4().hex[:12]


def _who() -> str:
    """The URI in the caller's certificate; empty without certificates."""
    caller = CALLER.get()
    return caller.uri if caller is not None else ""
