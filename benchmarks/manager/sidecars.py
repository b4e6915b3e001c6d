"""Simulated sidecars: the manager's clients, with the real protocol and without state.

A sidecar registers with reports on its groups, sends heartbeats, follows the manager's news, and adopts new epochs as
if it always had all files.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Coroutine, Iterable
from dataclasses import dataclass, field

import grpc
import grpc.aio

from benchmarks.manager.shape import FIRST_VERSION, GROUP_BYTES, version_of
from rhino_core import retry
from rhino_core.ids import Epoch, GroupId, Worker
from rhino_core.rpc.channel import CALL_S_MAX, aio_channel
from rhino_core.rpc.convert import epoch_to_pb, group_of, group_to_pb, labelled_worker_to_pb, store_version_to_pb
from rhino_core.security.transport import Transport
from rhino_core.version import PROTOCOL
from rhino_pb import common_pb2, peer_pb2, peer_pb2_grpc, replication_pb2, replication_pb2_grpc

CALL_TIMEOUT_S = 60.0
FILES = 12  # of each group


@dataclass(slots=True)
class Held:
    """A sidecar's part of a group. `epoch`: the newest one it was told of. `writes`: its executor writes it."""

    epoch: common_pb2.Epoch
    version: int
    writes: bool


@dataclass(slots=True)
class Trips:
    """Round trips of heartbeats in seconds, and how many messages with news came."""

    heartbeats_s: list[float] = field(default_factory=list)
    news: int = 0
    news_bytes: int = 0


class Sidecar:
    """One simulated sidecar. `trips` may be shared by many.

    `phase`: its first heartbeat comes after this part of an interval. Sidecars registered together would otherwise
    always send theirs together, and one pause of the manager would count for all of them.
    """

    def __init__(self, worker: Worker, address: str, transport: Transport, trips: Trips, phase: float = 0.0) -> None:
        self.worker = worker
        self.live = False  # registered, and it has the manager's snapshot
        self.held: dict[GroupId, Held] = {}
        self._trips = trips
        self._phase = phase
        self._channel = aio_channel(address, transport)
        self._changed: set[GroupId] = set()
        self._interval_s = 0.5
        self._lease = b""
        self._process_id = f"{worker.worker_id}-process"

    def hold(self, group: GroupId, epoch: Epoch, *, writes: bool) -> None:
        self.held[group] = Held(epoch_to_pb(epoch), FIRST_VERSION, writes)

    def advance(self, groups: Iterable[GroupId], version: int) -> None:
        """A batch was committed: the next heartbeat reports these groups."""
        for group in groups:
            if group in self.held:
                self.held[group].version = version
                self._changed.add(group)

    async def run(self) -> None:
        """Until cancelled. Begins again whenever the manager is lost."""
        stub = replication_pb2_grpc.ReplicationManagerStub(self._channel)
        pauses = retry.MANAGER.pauses()
        try:
            while True:
                with contextlib.suppress(grpc.RpcError, asyncio.InvalidStateError):
                    await self._register(stub)
                    pauses.reset()
                    await _first_end(self._beat(stub), self._watch(stub))
                self.live = False
                await pauses.sleep()
        finally:
            await self._channel.close(None)

    async def _register(self, stub: replication_pb2_grpc.ReplicationManagerAsyncStub) -> None:
        seen = max((held.epoch for held in self.held.values()), key=_order, default=common_pb2.Epoch())
        request = replication_pb2.RegisterRequest(
            worker=labelled_worker_to_pb(self.worker),
            capacity_bytes=1 << 42,
            highest_epoch=seen,
            groups=[self._report(group) for group in self.held],
            process_id=self._process_id,
            disk=common_pb2.DISK_STATE_OK,
            protocol=PROTOCOL,
        )
        reply = await stub.Register(request, timeout=CALL_TIMEOUT_S)
        self._lease, self._interval_s = reply.lease, reply.heartbeat_interval_s

    def _report(self, group: GroupId) -> replication_pb2.GroupReport:
        held = self.held[group]
        newest = store_version_to_pb(version_of(group, held.version))
        return replication_pb2.GroupReport(
            group=group_to_pb(group),
            epoch=held.epoch,
            whole=True,
            stored_bytes=GROUP_BYTES,
            stored_files=FILES,
            newest_held=[newest],
            newest_written=[newest] if held.writes else [],
        )

    async def _beat(self, stub: replication_pb2_grpc.ReplicationManagerAsyncStub) -> None:
        """Sends heartbeats at the interval, and measures how long each answer takes."""
        loop = asyncio.get_running_loop()
        stream = stub.Heartbeat(timeout=CALL_S_MAX)  # type: ignore[call-arg]  # written below
        sent: deque[float] = deque()

        async def read() -> None:
            while isinstance(await stream.read(), replication_pb2.HeartbeatReply):
                self._trips.heartbeats_s.append(loop.time() - sent.popleft())

        reader = asyncio.create_task(read())
        try:
            await asyncio.sleep(self._phase * self._interval_s)
            while not reader.done():
                changed, self._changed = self._changed, set()
                request = replication_pb2.HeartbeatRequest(
                    worker_id=self.worker.worker_id,
                    incarnation=self.worker.incarnation,
                    stored_bytes=GROUP_BYTES * len(self.held),
                    free_bytes=1 << 41,
                    changed=[self._report(group) for group in changed],
                    resident_bytes_max=1 << 28,
                    lease=self._lease,
                    scrub=common_pb2.ScrubStatus(number=1),
                    disk=common_pb2.DISK_STATE_OK,
                )
                sent.append(loop.time())
                await stream.write(request)
                await asyncio.wait({reader}, timeout=self._interval_s)
            await reader
        finally:
            reader.cancel()
            await asyncio.gather(reader, return_exceptions=True)
            stream.cancel()

    async def _watch(self, stub: replication_pb2_grpc.ReplicationManagerAsyncStub) -> None:
        request = replication_pb2.WatchGroupsRequest(
            worker_id=self.worker.worker_id,
            incarnation=self.worker.incarnation,
            lease=self._lease,
        )
        stream = stub.WatchGroups(request, timeout=CALL_S_MAX)
        try:
            async for update in stream:
                self._trips.news += 1
                self._trips.news_bytes += update.ByteSize()
                self._adopt(update)
                self.live = True
        finally:
            stream.cancel()

    def _adopt(self, update: replication_pb2.GroupUpdate) -> None:
        for message in update.groups:
            group, me = group_of(message.group), self.worker.worker_id
            mine = any(member.worker.worker_id == me for member in message.members)
            held = self.held.get(group)
            if held is None:
                if mine:
                    self.held[group] = Held(message.epoch, FIRST_VERSION, writes=False)
                    self._changed.add(group)
            elif _order(message.epoch) > _order(held.epoch):
                held.epoch = message.epoch
                self._changed.add(group)


class Peers(peer_pb2_grpc.PeerServicer):
    """The peer services of all simulated sidecars: the first worker asked is the writer of each version."""

    def __init__(self, worker: Worker) -> None:
        """`worker`: in all answers. A server does not know the address of a call among its own."""
        self._worker = labelled_worker_to_pb(worker)

    async def CheckVersions(
        self, request: peer_pb2.CheckVersionsRequest, context: object
    ) -> peer_pb2.CheckVersionsReply:
        checks = [peer_pb2.VersionCheck(version=v, held=True, written_here=True) for v in request.versions]
        return peer_pb2.CheckVersionsReply(worker=self._worker, checks=checks)


def _order(epoch: common_pb2.Epoch) -> tuple[int, int]:
    return epoch.generation, epoch.counter


async def _first_end(*streams: Coroutine[None, None, None]) -> None:
    """Runs them until one ends, and ends the others. Raises the error of the first one."""
    tasks = [asyncio.create_task(stream) for stream in streams]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
