"""The ReplicationManager service: the core behind gRPC, its effects on the journal and on the watchers."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any, TypeAlias

import grpc.aio

from replication_manager.core import events as ev
from replication_manager.rpc import messages, stored
from replication_manager.rpc.probe import refuses
from replication_manager.rpc.watchers import Watcher
from rhino.errors import UnavailableError, UnknownError
from rhino.ids import GroupId, Worker
from rhino.journal import Journal
from rhino.rpc import convert
from rhino.rpc.server import Server
from rhino.settings import ManagerSettings
from rhino_pb import common_pb2, replication_pb2_grpc
from rhino_pb import replication_pb2 as pb

log = logging.getLogger(__name__)
SERVICE_NAME = "rhino.v1.ReplicationManager"
SETTLE_S = 10.0  # a manager with an empty journal waits so long for workers before anything counts as lost
Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"


class ReplicationService(replication_pb2_grpc.ReplicationManagerServicer):
    """Attach to a server, start that, then `run`. Needs a running event loop.

    Events are handled one at a time, each with all its effects: journalled before anybody hears of them.
    """

    def __init__(self, journal: Journal, settings: ManagerSettings) -> None:
        self._journal = journal
        self._settings = settings
        self._loop = asyncio.get_running_loop()
        self.core = stored.restore(journal, settings, self._loop.time())
        # Until then workers may exist that nobody has named: a later life knows them from its journal.
        self._settled_at = self._loop.time() + (SETTLE_S if journal.fresh else 0.0)
        self._watchers: set[Watcher] = set()
        self._interested: dict[str, set[GroupId]] = {}
        self._changed = asyncio.Event()
        self._streams: Counter[tuple[str, str]] = Counter()  # open heartbeat streams of (worker, process)
        self._scrubs: dict[str, common_pb2.ScrubStatus] = {}  # as each worker said last; shown, and nothing else
        self._failure: Exception | None = None
        self._probes: set[asyncio.Task[None]] = set()

    def attach(self, server: Server) -> None:
        server.add(replication_pb2_grpc.add_ReplicationManagerServicer_to_server, self, SERVICE_NAME)

    async def run(self) -> None:
        """Notices ended leases until cancelled. Raises what broke the journal: the process must end then."""
        try:
            while self._failure is None:
                self._changed.clear()
                try:
                    async with asyncio.timeout_at(self.core.next_deadline()):
                        await self._changed.wait()
                except TimeoutError:
                    self._handle(ev.Tick())
            raise self._failure
        finally:
            for probe in self._probes:
                probe.cancel()

    def _handle(self, event: ev.Event) -> None:
        if self._failure is not None:
            raise UnavailableError("the manager is stopping: its journal cannot be written")
        try:
            effects = self.core.handle(event, now=self._loop.time())
            self._carry_out(effects)
        finally:
            self._changed.set()

    def _carry_out(self, effects: list[ev.Effect]) -> None:
        try:
            stored.persist(self._journal, effects)
        except Exception as error:
            self._failure = error  # the core is ahead of the journal: nothing of it may be told any more
            raise
        for effect in effects:
            self._publish(effect)

    def _publish(self, effect: ev.Effect) -> None:
        match effect:
            case ev.PublishGroup(group):
                members = [f"{m.worker.worker_id}{'' if m.whole else '?'}" for m in group.members]
                fields = {"group": str(group.group), "epoch": str(group.epoch), "members": " > ".join(members)}
                log.info("group", extra=fields)
                for watcher in self._watchers:
                    watcher.group_changed(group)
            case ev.PublishWorkers():
                states = {r.worker.worker_id: r.state.value for r in self.core.membership.records.values()}
                log.info("workers", extra=states)
                for watcher in self._watchers:
                    watcher.workers_changed()
            case ev.PublishFloors(floors):
                for watcher in self._watchers:
                    watcher.floors_raised(floors)
            case ev.DropGroups(groups):
                for watcher in self._watchers:
                    watcher.groups_gone(groups)
            case ev.PublishForgotten(job, fence):
                log.info("job forgotten", extra={"job": job, "fence": str(fence)})
                for watcher in self._watchers:
                    watcher.job_forgotten(job, fence)
            case ev.DropWorker(worker_id):
                log.info("worker forgotten", extra={"worker": worker_id})
                self._interested.pop(worker_id, None)
                self._scrubs.pop(worker_id, None)
            case ev.PersistWorker() | ev.PersistGeneration() | ev.PersistGroup() | ev.PersistFloor():
                return  # journalled before
            case ev.PersistForgotten():
                return
            case ev.PersistDraining(worker_id, draining):
                log.info("draining" if draining else "draining ended", extra={"worker": worker_id})

    # ---------------------------------------------------------------- sidecars

    async def Register(self, request: pb.RegisterRequest, context: Context) -> pb.RegisterReply:
        self._handle(
            ev.Registered(
                worker=convert.worker_of(request.worker),
                process_id=request.process_id,
                highest_epoch=convert.epoch_of(request.highest_epoch),
                reports=tuple(messages.report_of(report) for report in request.groups),
                disk=convert.disk_of(request.disk),
                disk_message=request.disk_message,
                known=tuple(convert.worker_of(worker) for worker in request.known),
            )
        )
        return pb.RegisterReply(
            generation=self.core.generation,
            heartbeat_interval_s=self._settings.heartbeat_interval_s,
            lease_s=self._settings.lease_s,
        )

    async def Heartbeat(
        self, request_iterator: AsyncIterator[pb.HeartbeatRequest], context: Context
    ) -> AsyncIterator[pb.HeartbeatReply]:
        worker_id = process_id = ""
        try:
            async for request in request_iterator:
                if not worker_id:
                    process_id = self._process_of(request.worker_id)
                    worker_id = request.worker_id
                    self._streams[worker_id, process_id] += 1
                beat = messages.beat_of(request)
                self._handle(beat)
                for watcher in self._watchers:
                    watcher.reported(worker_id, (report.group for report in beat.changed))
                if request.HasField("scrub"):
                    self._scrubs[worker_id] = request.scrub
                if request.leaving:
                    self._handle(ev.Leaving(worker_id, process_id))
                    return
                yield pb.HeartbeatReply(lease_s=self._settings.lease_s)
        finally:
            if worker_id:
                self._stream_ended(worker_id, process_id)

    def _stream_ended(self, worker_id: str, process_id: str) -> None:
        """Suspicion starts with the last stream of a process: it may have opened the next one already."""
        self._streams[worker_id, process_id] -= 1
        if self._streams[worker_id, process_id] > 0:
            return
        del self._streams[worker_id, process_id]
        self._handle(ev.StreamBroken(worker_id, process_id))
        if record := self.core.membership.records.get(worker_id):
            probe = self._loop.create_task(self._probe(record.worker, process_id), name=f"probe of {worker_id}")
            self._probes.add(probe)
            probe.add_done_callback(self._probes.discard)

    async def _probe(self, worker: Worker, process_id: str) -> None:
        if await refuses(worker.peer_address) and self._failure is None:
            log.info("process has ended", extra={"worker": worker.worker_id})
            self._handle(ev.Refused(worker.worker_id, process_id))

    def _process_of(self, worker_id: str) -> str:
        record = self.core.membership.records.get(worker_id)
        if record is None or not record.process_id:  # or known from the journal only
            raise UnavailableError(f"worker {worker_id!r} is not registered: register first")
        return record.process_id

    async def WatchGroups(self, request: pb.WatchGroupsRequest, context: Context) -> AsyncIterator[pb.GroupUpdate]:
        interested = self._interested.setdefault(request.worker_id, set())
        watcher = Watcher(self.core, request.worker_id, interested)
        self._watchers.add(watcher)
        try:
            snapshot = watcher.snapshot()
            snapshot.settling_s = max(0.0, self._settled_at - self._loop.time())
            yield snapshot
            while True:
                yield await watcher.next()
        finally:
            self._watchers.discard(watcher)

    async def ResolveGroup(self, request: pb.ResolveGroupRequest, context: Context) -> pb.ResolveGroupReply:
        group = convert.group_of(request.group)
        self._handle(ev.Resolve(group, request.worker_id, convert.settings_of(request.settings)))
        self._interested.setdefault(request.worker_id, set()).add(group)
        return pb.ResolveGroupReply(group=convert.replica_group_to_pb(self.core.groups[group]))

    # ---------------------------------------------------------------- handover manager and people

    async def PublishFloors(self, request: pb.PublishFloorsRequest, context: Context) -> pb.PublishFloorsReply:
        self._handle(messages.batch_of(request))
        return pb.PublishFloorsReply()

    async def ListWorkers(self, request: pb.ListWorkersRequest, context: Context) -> pb.ListWorkersReply:
        now, groups = self._loop.time(), list(self.core.groups.values())
        records = sorted(self.core.membership.records.values(), key=lambda r: r.worker.worker_id)
        return pb.ListWorkersReply(
            workers=[
                messages.worker_status(
                    record,
                    groups,
                    self._scrubs.get(record.worker.worker_id),
                    now,
                    draining=record.worker.worker_id in self.core.draining,
                )
                for record in records
            ],
            generation=self.core.generation,
        )

    async def DescribeGroups(self, request: pb.DescribeGroupsRequest, context: Context) -> pb.DescribeGroupsReply:
        groups = sorted(
            (g for g in self.core.groups.values() if request.job in ("", g.group.job)), key=lambda g: g.group
        )
        return pb.DescribeGroupsReply(groups=[messages.group_status(self.core, group) for group in groups])

    async def ChangeGroup(self, request: pb.ChangeGroupRequest, context: Context) -> pb.ChangeGroupReply:
        change = messages.change_of(request)
        self._handle(change)
        return pb.ChangeGroupReply(group=convert.replica_group_to_pb(self.core.groups[change.group]))

    async def SetDraining(self, request: pb.SetDrainingRequest, context: Context) -> pb.SetDrainingReply:
        self._handle(ev.DrainSet(request.worker_id, request.draining))
        return pb.SetDrainingReply()

    async def ForgetJob(self, request: common_pb2.ForgetJobRequest, context: Context) -> common_pb2.ForgetJobReply:
        usage = messages.job_usage(self.core, request.job)
        if not request.dry_run:
            self._handle(ev.JobForgotten(request.job))
        elif not usage.groups and not usage.workers:
            raise UnknownError(f"job {request.job!r}: no worker stores anything of it")
        return usage

    async def ForgetWorker(self, request: pb.ForgetWorkerRequest, context: Context) -> pb.ForgetWorkerReply:
        usage = messages.worker_usage(self.core, request.worker_id)
        record = self.core.membership.records.get(request.worker_id)
        if not request.dry_run or record is None or record.present:  # refused also when dry
            self._handle(ev.WorkerForgotten(request.worker_id))
        return usage
