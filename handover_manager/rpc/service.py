"""The HandoverManager service: handover calls and driver sessions around the core."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import uuid
from collections.abc import AsyncIterator, Callable
from typing import Any, TypeAlias

import grpc.aio

from handover_manager.core import events as ev
from handover_manager.core.handover import Handover
from handover_manager.core.intents import Drain
from handover_manager.core.manager import HandoverCore
from handover_manager.core.plan import Request
from handover_manager.rpc import messages
from handover_manager.rpc.runtime import Runtime
from handover_manager.rpc.session import DriverLine
from rhino.errors import AlreadyThereError, InvalidRequestError, TooFewWorkersError
from rhino.failpoints import hit
from rhino.journal import Journal
from rhino.rpc import convert
from rhino.rpc.server import Server
from rhino_pb import common_pb2, handover_pb2_grpc
from rhino_pb import handover_pb2 as pb

log = logging.getLogger(__name__)
SERVICE_NAME = "rhino.v1.HandoverManager"
WORKERS_WAIT_S = 10.0  # for enough live workers when a driver says hello
WORKERS_POLL_S = 0.2

Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"
Requests = AsyncIterator[pb.DriverEvent]


class HandoverService(handover_pb2_grpc.HandoverManagerServicer):
    """Attach to a server, start that, then `run`. RhinoErrors become their status codes in the server.

    `manager` is "host:port" at which this process itself is reached. Needs a running event loop.
    """

    def __init__(self, journal: Journal, manager: str) -> None:
        self._runtime = Runtime(journal, manager)
        self._numbers = itertools.count(1)

    def attach(self, server: Server) -> None:
        server.add(handover_pb2_grpc.add_HandoverManagerServicer_to_server, self, SERVICE_NAME)

    async def run(self) -> None:
        """Follows the cluster and drives handovers until cancelled."""
        await self._runtime.run()

    @property
    def core(self) -> HandoverCore:
        """To be read on the loop's thread only."""
        return self._runtime.core

    def notice_announced(self, notice: Callable[[Handover], None]) -> None:
        """`notice` is called whenever a handover has changed."""
        self._runtime.notice_announced(notice)

    async def PlanHandover(self, request: pb.HandoverRequest, context: Context) -> pb.HandoverPlan:
        return messages.plan_to_pb(await self._runtime.plan(messages.request_of(request)))

    async def StartHandover(self, request: pb.HandoverRequest, context: Context) -> pb.HandoverStatus:
        wanted = messages.request_of(request)
        await self._runtime.look_for(wanted)
        return messages.handover_to_pb(self._start(wanted))

    def _start(self, request: Request) -> Handover:
        handover_id = uuid.uuid4().hex[:12]
        self._runtime.apply(ev.HandoverRequested(handover_id, request))
        self._runtime.look_soon()
        return self._runtime.core.handovers.find(handover_id)

    async def DrainWorker(self, request: pb.DrainRequest, context: Context) -> pb.DrainStatus:
        """The mark first, so that nothing new arrives; then what is there moves off, in one handover of all jobs."""
        wanted = Request(
            "",
            deadline_s=request.deadline_s,
            intent=Drain(request.worker),
            strategy=messages.strategy_of(request.strategy),
        )
        await self._runtime.drain_state(request.worker)  # a fresh view; refused when nobody knows the worker
        if not request.cancel:
            self._runtime.core.check_drain(request.worker)
            with contextlib.suppress(AlreadyThereError):
                await self._runtime.plan(wanted)  # refused before anything is marked
        await self._runtime.set_draining(request.worker, not request.cancel)
        if not request.cancel:
            with contextlib.suppress(AlreadyThereError):  # nothing runs there that is not on its way already
                self._start(wanted)
        return messages.drain_to_pb(await self._runtime.drain_state(request.worker))

    async def GetDrain(self, request: pb.GetDrainRequest, context: Context) -> pb.DrainStatus:
        return messages.drain_to_pb(await self._runtime.drain_state(request.worker))

    async def Explain(self, request: pb.ExplainRequest, context: Context) -> pb.ExplainReply:
        await self._runtime.look()
        return messages.explanation_to_pb(self._runtime.core.explain(request.job, request.virtual_node))

    async def WatchHandover(
        self, request: pb.WatchHandoverRequest, context: Context
    ) -> AsyncIterator[pb.HandoverStatus]:
        async for status in self._runtime.watch(request.handover_id):
            yield status

    async def CancelHandover(self, request: pb.CancelHandoverRequest, context: Context) -> pb.HandoverStatus:
        self._runtime.apply(ev.CancelRequested(request.handover_id))
        return messages.handover_to_pb(self._runtime.core.handovers.find(request.handover_id))

    async def ListHandovers(self, request: pb.ListHandoversRequest, context: Context) -> pb.ListHandoversReply:
        core = self._runtime.core
        job = core.jobs.find(request.job).job if request.job else ""
        found = [h for h in core.handovers.all() if not job or job in h.plan.jobs]
        return pb.ListHandoversReply(handovers=[messages.handover_to_pb(h) for h in found])

    async def ListJobs(self, request: pb.ListJobsRequest, context: Context) -> pb.ListJobsReply:
        core = self._runtime.core
        return pb.ListJobsReply(jobs=[messages.job_to_pb(job, core.view) for job in core.jobs.all()])

    async def ForgetJob(self, request: common_pb2.ForgetJobRequest, context: Context) -> common_pb2.ForgetJobReply:
        return await self._runtime.forget_job(request.job, dry_run=request.dry_run)

    async def DriverSession(self, request_iterator: Requests, context: Context) -> AsyncIterator[pb.DriverCommand]:
        requests = aiter(request_iterator)
        hello = await anext(requests, pb.DriverEvent())
        if hello.WhichOneof("event") != "hello":
            raise InvalidRequestError("a driver session begins with DriverHello")
        await self._check_workers(hello.hello)
        line = DriverLine(next(self._numbers), hello.hello.application_id)
        with self._runtime.line(line):
            yield pb.DriverCommand(welcome=pb.DriverWelcome(generation=self._runtime.generation))
            reader = asyncio.create_task(self._read(requests, line))
            try:
                async for push in line.pushes():
                    hit("handover.push.before")
                    yield pb.DriverCommand(desired=messages.locations_to_pb(push, self._runtime.generation))
                    hit("handover.push.after")
                await reader
            finally:
                reader.cancel()

    async def _read(self, requests: Requests, line: DriverLine) -> None:
        try:
            async for event in requests:
                await self._take(event, line)
        finally:
            line.close()

    async def _take(self, event: pb.DriverEvent, line: DriverLine) -> None:
        runtime = self._runtime
        match event.WhichOneof("event"):
            case "query_started":
                runtime.apply(messages.query_started_of(event.query_started, line.number, line.application_id))
                runtime.look_soon()
            case "batch_logged":
                runtime.apply(messages.batch_logged_of(event.batch_logged))
                await runtime.publish_floors(event.batch_logged)
            case "query_idle":
                idle = event.query_idle
                runtime.apply(ev.QueryIdle(idle.job, idle.run_id, idle.configuration_epoch))
            case "query_ended":
                runtime.apply(ev.QueryEnded(event.query_ended.job, event.query_ended.run_id))
            case "executor_changed":
                runtime.look_soon()
            case other:
                raise InvalidRequestError(f"driver event {other!r} is not expected here")

    async def _check_workers(self, hello: pb.DriverHello) -> None:
        """Waits until as many workers are known as the settings need; raises TooFewWorkersError with the way out.

        Lost ones count: a driver starts again while a worker is down, and a running one finds a new manager then. Its
        commits are as safe as those of a query that has been running all the time.
        """
        factor = convert.settings_of(hello.settings).replication_factor
        loop = asyncio.get_running_loop()
        deadline = loop.time() + WORKERS_WAIT_S
        while True:
            await self._runtime.look()
            workers = self._runtime.core.view.workers
            live = sorted(w for w, seen in workers.items() if seen.live)
            few = f"replication factor {factor} needs {factor + 1} live workers, {len(live)} are live"
            few += f"{': ' if live else ''}{', '.join(live)}"
            if len(workers) > factor:
                if len(live) <= factor:
                    log.warning(few, extra={"application": hello.application_id, "known": ", ".join(sorted(workers))})
                return
            if loop.time() >= deadline:
                raise TooFewWorkersError(f"{few}; start more sidecars or lower the replication factor")
            await asyncio.sleep(WORKERS_POLL_S)
