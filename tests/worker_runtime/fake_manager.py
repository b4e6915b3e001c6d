"""A minimal replication manager for tests: keeps groups in memory and does what the test tells it."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any

from rhino_core.errors import UnknownError
from rhino_core.ids import Epoch, GroupId, JobSettings, Member, ReplicaGroup, StoreVersion, Worker
from rhino_core.rpc.convert import (
    epoch_of,
    epoch_to_pb,
    group_of,
    replica_group_of,
    replica_group_to_pb,
    settings_of,
    store_version_to_pb,
    worker_of,
    worker_to_pb,
)
from rhino_core.rpc.server import Server
from rhino_pb import common_pb2, replication_pb2, replication_pb2_grpc

__all__ = ["FakeManager", "replica_group_of"]


class FakeManager(replication_pb2_grpc.ReplicationManagerServicer):
    """Marks members whole when they report it; everything else happens by the test's calls."""

    def __init__(self) -> None:
        self.workers: dict[str, Worker] = {}
        self.absent: dict[str, Worker] = {}
        self.introduced: list[Worker] = []  # named to all, and chosen for no group
        self.refused_groups = 0  # asked for, not there, and not to be made
        self.groups: dict[GroupId, ReplicaGroup] = {}
        self.reports: dict[tuple[str, GroupId], Any] = {}
        self.left: list[str] = []
        self.beats = 0
        self.beats_of: Counter[str] = Counter()
        self.floors: list[StoreVersion] = []
        self.forgotten: dict[str, Epoch] = {}  # jobs with their fences
        self.auto_whole = True
        self.settling_s = 0.0
        self.archive = ""
        self.named: dict[str, set[str]] = {}  # worker ids that each worker named when it registered last
        self.seen_as: Callable[[Worker], Worker] = lambda worker: worker  # to others, perhaps behind a proxy
        self._watchers: list[asyncio.Queue[replication_pb2.GroupUpdate]] = []
        self._changed = asyncio.Condition()
        self._server: Server | None = None

    async def start(self, port: int = 0) -> str:
        self._server = Server(reflect=False)
        self._server.add(
            replication_pb2_grpc.add_ReplicationManagerServicer_to_server, self, "rhino.v1.ReplicationManager"
        )
        bound = self._server.bind(f"127.0.0.1:{port}")
        await self._server.start()
        return f"127.0.0.1:{bound}"

    async def stop(self) -> None:
        assert self._server is not None
        await self._server.stop(0)

    async def until(self, condition: Callable[[], bool], timeout_s: float = 20.0) -> None:
        """Waits for something that a sidecar reports."""
        async with asyncio.timeout(timeout_s), self._changed:
            await self._changed.wait_for(condition)

    async def until_whole(self, group: GroupId, timeout_s: float = 20.0) -> None:
        """Waits until every member is whole, and every member has adopted the epoch that says so."""

        def adopted() -> bool:
            state = self.groups[group]
            reports = [self.reports.get((member.worker.worker_id, group)) for member in state.members]
            return all(m.whole for m in state.members) and all(
                report is not None and epoch_of(report.epoch) == state.epoch for report in reports
            )

        await self.until(adopted, timeout_s)

    def set_group(self, group: GroupId, *members: str, whole: str = "all", required: int = 1) -> ReplicaGroup:
        """New membership under a new epoch. `whole`: "all", or worker ids joined by commas."""
        old = self.groups.get(group)
        epoch = Epoch(1, old.epoch.counter + 1 if old else 1)
        wholes = members if whole == "all" else whole.split(",")
        settings = old.settings if old else JobSettings(replication_factor=len(members) - 1)
        new = ReplicaGroup(
            group, epoch, tuple(Member(self.workers[m], m in wholes) for m in members), required, settings
        )
        self.groups[group] = new
        self._tell(groups=[new])
        return new

    def lose(self, worker_id: str, *, absent: bool) -> None:
        """The worker is not live any more; `absent`: it may still hold versions."""
        worker = self.workers.pop(worker_id)
        if absent:
            self.absent[worker_id] = worker
        self._tell()

    def introduce(self, worker: Worker) -> None:
        """Names it to all sidecars as if it lived."""
        self.introduced.append(worker)
        self._tell()

    def set_floors(self, *floors: StoreVersion) -> None:
        self.floors = list(floors)
        self._tell()

    def forget(self, job: str, fence: Epoch) -> None:
        self.forgotten[job] = fence
        self.groups = {group: state for group, state in self.groups.items() if group.job != job}
        self._tell()

    def _tell(self, groups: list[ReplicaGroup] | None = None) -> None:
        for watcher in self._watchers:
            watcher.put_nowait(self._update(groups or [], snapshot=False))

    def _update(self, groups: list[ReplicaGroup], *, snapshot: bool) -> replication_pb2.GroupUpdate:
        return replication_pb2.GroupUpdate(
            snapshot=snapshot,
            settling_s=self.settling_s if snapshot else 0.0,
            groups=[replica_group_to_pb(group) for group in groups],
            workers=[worker_to_pb(worker) for worker in (*self.workers.values(), *self.introduced)],
            absent=[worker_to_pb(worker) for worker in self.absent.values()],
            forgotten=[
                common_pb2.ForgottenJob(job=job, fence=epoch_to_pb(fence)) for job, fence in self.forgotten.items()
            ],
            floors=[common_pb2.Floor(version=store_version_to_pb(floor)) for floor in self.floors],
        )

    # ------------------------------------------------------------ service

    async def ListWorkers(self, request: Any, context: Any) -> Any:
        raise AssertionError("not for sidecars")

    DescribeGroups = ListWorkers

    async def Register(self, request: replication_pb2.RegisterRequest, context: Any) -> replication_pb2.RegisterReply:
        worker = self.seen_as(worker_of(request.worker))
        self.workers[worker.worker_id] = worker
        self.named[worker.worker_id] = {known.worker_id for known in request.known}
        self.absent.pop(worker.worker_id, None)
        for report in request.groups:
            self.reports[worker.worker_id, group_of(report.group)] = report
        self._tell()
        async with self._changed:
            self._changed.notify_all()
        return replication_pb2.RegisterReply(generation=1, heartbeat_interval_s=0.1, lease_s=5, archive=self.archive)

    async def RegisterInParts(
        self, request_iterator: AsyncIterator[replication_pb2.RegisterPart], context: Any
    ) -> replication_pb2.RegisterReply:
        return await self.Register((await anext(request_iterator)).request, context)

    async def Heartbeat(
        self, request_iterator: AsyncIterator[replication_pb2.HeartbeatRequest], context: Any
    ) -> AsyncIterator[replication_pb2.HeartbeatReply]:
        async for beat in request_iterator:
            self.beats += 1
            self.beats_of[beat.worker_id] += 1
            if beat.leaving:
                self.left.append(beat.worker_id)
            for report in beat.changed:
                self._reported(beat.worker_id, report)
            async with self._changed:
                self._changed.notify_all()
            if beat.leaving:
                return
            yield replication_pb2.HeartbeatReply(lease_s=5)

    def _reported(self, worker_id: str, report: replication_pb2.GroupReport) -> None:
        gid = group_of(report.group)
        self.reports[worker_id, gid] = report
        group = self.groups.get(gid)
        member = group.member(worker_id) if group else None
        if not (self.auto_whole and group and member and report.whole and not member.whole):
            return
        if epoch_of(report.epoch) == group.epoch:
            members = tuple(replace(m, whole=m.whole or m == member) for m in group.members)
            copies = min(group.settings.copies, sum(m.whole for m in members))
            self.groups[gid] = new = replace(
                group, epoch=Epoch(1, group.epoch.counter + 1), members=members, required_copies=max(1, copies)
            )
            self._tell(groups=[new])

    async def WatchGroups(
        self, request: replication_pb2.WatchGroupsRequest, context: Any
    ) -> AsyncIterator[replication_pb2.GroupUpdate]:
        queue: asyncio.Queue[replication_pb2.GroupUpdate] = asyncio.Queue()
        self._watchers.append(queue)
        try:
            yield self._update(list(self.groups.values()), snapshot=True)
            while True:
                yield await queue.get()
        finally:
            self._watchers.remove(queue)

    async def ResolveGroup(
        self, request: replication_pb2.ResolveGroupRequest, context: Any
    ) -> replication_pb2.ResolveGroupReply:
        gid = group_of(request.group)
        if gid not in self.groups and request.existing_only:
            self.refused_groups += 1
            async with self._changed:
                self._changed.notify_all()
            raise UnknownError(f"{gid} is not there")
        if gid not in self.groups:
            settings = settings_of(request.settings)
            others = [w for w in sorted(self.workers) if w != request.worker_id][: settings.replication_factor]
            members = tuple(Member(self.workers[w], True) for w in [request.worker_id, *others])
            self.groups[gid] = ReplicaGroup(gid, Epoch(1, 1), members, min(settings.copies, len(members)), settings)
            self._tell(groups=[self.groups[gid]])
        return replication_pb2.ResolveGroupReply(group=replica_group_to_pb(self.groups[gid]))
