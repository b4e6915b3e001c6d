"""A manager process in this loop with fake sidecars and a fake driver, over real gRPC."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, cast

import grpc.aio

from rhino.daemons.manager_process import run_manager
from rhino_core.ids import GroupId, StoreId, StoreVersion, Version, Worker
from rhino_core.rpc import convert
from rhino_core.rpc.channel import aio_channel
from rhino_core.rpc.server import Server
from rhino_core.security.transport import PLAIN, Transport
from rhino_core.settings import ManagerSettings
from rhino_pb import archive_pb2, common_pb2, handover_pb2_grpc, peer_pb2_grpc, replication_pb2_grpc
from rhino_pb import handover_pb2 as pb
from rhino_pb import peer_pb2 as peer
from rhino_pb import replication_pb2 as rep

TIMEOUT_S = 20.0
END_OF_STREAM: Any = vars(grpc.aio)["EOF"]  # missing from the stubs
STATE_BYTES = 1_000


async def until(condition: Callable[[], object], what: str, timeout_s: float = TIMEOUT_S) -> None:
    """Polls until `condition()` is true; fails naming `what`."""
    deadline = asyncio.get_running_loop().time() + timeout_s
    while not condition():
        assert asyncio.get_running_loop().time() < deadline, f"{what}: not within {timeout_s} s"
        await asyncio.sleep(0.02)


async def eventually(condition: Callable[[], Awaitable[object]], what: str) -> None:
    """As `until`, with a condition to be awaited."""
    deadline = asyncio.get_running_loop().time() + TIMEOUT_S
    while not await condition():
        assert asyncio.get_running_loop().time() < deadline, f"{what}: not within {TIMEOUT_S} s"
        await asyncio.sleep(0.02)


class Manager:
    """`run_manager` on one folder and one port, to be stopped and started again."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.address = ""
        self.forget_grace_s = 24 * 3600.0
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        ready = asyncio.get_running_loop().create_future()
        settings = ManagerSettings(
            self._folder,
            self.address or "127.0.0.1:0",
            heartbeat_interval_s=0.1,
            lease_s=10.0,  # the loop may stand still for a while on a busy machine; workers leave by their streams
            suspect_lease_s=0.3,
            forget_grace_s=self.forget_grace_s,
            bootstrap=not self.address,
        )
        self._task = asyncio.create_task(run_manager(settings, ready.set_result))
        await asyncio.wait({self._task, ready}, timeout=TIMEOUT_S, return_when=asyncio.FIRST_COMPLETED)
        if self._task.done():
            self._task.result()
        self.address = ready.result()

    async def stop(self) -> None:
        assert self._task is not None
        self._task.cancel()
        await asyncio.wait_for(asyncio.gather(self._task, return_exceptions=True), TIMEOUT_S)


class FakeSidecar(peer_pb2_grpc.PeerServicer):
    """Registers, beats, follows its groups and says what it wrote. `catches_up`: reports whole at once."""

    def __init__(self, worker_id: str, manager: str) -> None:
        self.worker_id = worker_id
        self.catches_up = True
        self.written: set[StoreVersion] = set()
        self.groups: dict[GroupId, common_pb2.ReplicaGroup] = {}
        self.free_bytes = 10 * STATE_BYTES
        self._server = Server(reflect=False)
        self._channel = aio_channel(manager)
        self._stub = replication_pb2_grpc.ReplicationManagerStub(self._channel)
        self._tasks: list[asyncio.Task[None]] = []
        self._lease = b""
        self._pending = asyncio.Event()
        self._changed: dict[GroupId, rep.GroupReport] = {}

    async def start(self) -> None:
        self._server.add(peer_pb2_grpc.add_PeerServicer_to_server, self, "rhino.v1.Peer")
        port = self._server.bind("127.0.0.1:0")
        await self._server.start()
        host = f"host-{self.worker_id}"
        self.worker = Worker(self.worker_id, f"{self.worker_id}/boot", host, f"127.0.0.1:{port}")
        self._tasks.append(asyncio.create_task(self._live()))

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._channel.close(None)
        await self._server.stop(0)

    async def own(self, group: GroupId, *, factor: int = 1) -> None:
        """As an executor's first Prepare would: names a group, and so owns it."""
        await until(lambda: self._lease, f"{self.worker_id} is registered")
        settings = common_pb2.JobSettings(replication_factor=factor, replication_factor_set=True)
        request = rep.ResolveGroupRequest(
            group=convert.group_to_pb(group), worker_id=self.worker_id, settings=settings, lease=self._lease
        )
        await self._stub.ResolveGroup(request, timeout=TIMEOUT_S)

    async def CheckVersions(self, request: peer.CheckVersionsRequest, context: Any) -> peer.CheckVersionsReply:
        checks = [
            peer.VersionCheck(version=v, held=True, written_here=convert.store_version_of(v) in self.written)
            for v in request.versions
        ]
        return peer.CheckVersionsReply(worker=convert.worker_to_pb(self.worker), checks=checks)

    async def _live(self) -> None:
        while True:
            with contextlib.suppress(grpc.RpcError):
                reports = [self._report(g) for g in self.groups.values()]
                reply = await self._stub.Register(
                    rep.RegisterRequest(
                        worker=convert.worker_to_pb(self.worker),
                        capacity_bytes=100 * STATE_BYTES,
                        groups=reports,
                        process_id=self.worker.incarnation,
                    ),
                    timeout=TIMEOUT_S,
                )
                self._lease = reply.lease
                watch = asyncio.create_task(self._watch())
                try:
                    async for _ in self._stub.Heartbeat(self._beats()):
                        pass
                finally:
                    watch.cancel()
            await asyncio.sleep(0.05)

    async def _beats(self) -> AsyncIterator[rep.HeartbeatRequest]:
        while True:
            changed, self._changed = self._changed, {}
            yield rep.HeartbeatRequest(
                worker_id=self.worker_id,
                incarnation=self.worker.incarnation,
                lease=self._lease,
                free_bytes=self.free_bytes,
                changed=changed.values(),
            )
            self._pending.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._pending.wait(), 0.1)

    async def _watch(self) -> None:
        request = rep.WatchGroupsRequest(
            worker_id=self.worker_id, incarnation=self.worker.incarnation, lease=self._lease
        )
        with contextlib.suppress(grpc.RpcError):
            async for update in self._stub.WatchGroups(request):
                for group in update.groups:
                    self.groups[convert.group_of(group.group)] = group
                    self._changed[convert.group_of(group.group)] = self._report(group)
                self._pending.set()

    def _report(self, group: common_pb2.ReplicaGroup) -> rep.GroupReport:
        mine = next((m for m in group.members if m.worker.worker_id == self.worker_id), None)
        whole = mine is not None and (mine.whole or self.catches_up)
        return rep.GroupReport(
            group=group.group, epoch=group.epoch, whole=whole, stored_bytes=STATE_BYTES if whole else 0
        )

    def catch_up(self) -> None:
        """Now whole in every group."""
        self.catches_up = True
        self._changed = {g: self._report(group) for g, group in self.groups.items()}
        self._pending.set()


class SessionEndedError(Exception):
    """The manager has ended the session before it welcomed the driver."""


class BatchLoad(NamedTuple):
    """Task times of the partitions of task group 0, duration and trigger interval of a batch, in seconds.

    `rows`: input rows. `lags`: offsets that sources are behind, and that they gave to the batch.
    """

    task_s: Mapping[int, float]
    batch_s: float = 0.0
    trigger_s: float = 0.0
    rows: int = 0
    lags: Mapping[str, tuple[float, float]] = {}


class FakeDriver:
    """A driver's session: reports what the test says, keeps what it is sent. `answers`: says that it is alive."""

    def __init__(
        self,
        manager: str,
        *,
        factor: int = 1,
        synced: bool = False,
        answers: bool = True,
        former_token: str = "",
        transport: Transport = PLAIN,
    ) -> None:
        self._answers = answers
        self._former_token = former_token
        self.token = ""
        self.refused: list[pb.QueryRefused] = []
        self.lost: list[str] = []  # workers
        self.probes = 0
        self._channel = aio_channel(manager, transport)
        self._stub = handover_pb2_grpc.HandoverManagerStub(self._channel)
        self._call: Any = cast(Any, self._stub).DriverSession()
        self._settings = common_pb2.JobSettings(
            replication_factor=factor,
            replication_factor_set=True,
            durability=common_pb2.DURABILITY_SYNCED if synced else common_pb2.DURABILITY_REPLICATED,
        )
        self._reader: asyncio.Task[None] | None = None
        self.maps: dict[str, pb.DesiredLocations] = {}
        self.pushes = 0

    async def hello(self, *, protocol: int = 0, rhino_version: str = "") -> int:
        """Says hello as a driver of that version. By default it reports as little as the first drivers did.

        Returns the manager's generation.
        """
        hello = pb.DriverHello(
            application_id="app",
            spark_version="4",
            settings=self._settings,
            host="driver-host",
            former_token=self._former_token,
            protocol=protocol,
            rhino_version=rhino_version,
        )
        await self._call.write(pb.DriverEvent(hello=hello))
        welcome = await asyncio.wait_for(self._call.read(), TIMEOUT_S)
        if welcome is END_OF_STREAM:
            raise SessionEndedError
        self.token = welcome.welcome.token
        self._reader = asyncio.create_task(self._read())
        return int(welcome.welcome.generation)

    async def _read(self) -> None:
        while (command := await self._call.read()) is not END_OF_STREAM:
            match command.WhichOneof("command"):
                case "desired":
                    self.maps[command.desired.job] = command.desired
                    self.pushes += 1
                case "refused":
                    self.refused.append(command.refused)
                case "lost":
                    self.lost = list(command.lost.workers)
                case "checkpoint":
                    asked = command.checkpoint
                    paths = ("metadata", f"offsets/{asked.batch_id}", f"commits/{asked.batch_id}")
                    files = [archive_pb2.CheckpointFile(path=path, data=path.encode()) for path in paths]
                    read = pb.CheckpointRead(job=asked.job, batch_id=asked.batch_id, files=files)
                    await self._call.write(pb.DriverEvent(checkpoint=read))
                case "probe":
                    self.probes += 1
                    if self._answers:
                        await self._call.write(pb.DriverEvent(alive=pb.DriverAlive()))

    async def started(
        self,
        job: str,
        partitions: int,
        *,
        name: str = "",
        run_id: str = "run-1",
        location: str = "",
        operators: tuple[int, ...] = (0,),
        temporary: bool = False,
    ) -> None:
        groups = [pb.TaskGroup(task_group=0, operators=operators, partitions=partitions)]
        event = pb.QueryStarted(
            job=job, run_id=run_id, name=name, task_groups=groups, location=location, temporary=temporary
        )
        await self._call.write(pb.DriverEvent(query_started=event))

    async def executor(self, executor_id: str, host: str, worker_id: str = "") -> None:
        """An executor has come."""
        changed = pb.ExecutorChanged(executor_id=executor_id, host=host, worker_id=worker_id)
        await self._call.write(pb.DriverEvent(executor_changed=changed))

    async def logged(
        self,
        job: str,
        batch_id: int,
        writers: dict[int, FakeSidecar],
        run_id: str = "run-1",
        load: BatchLoad | None = None,
    ) -> None:
        """A batch whose partitions were written by these sidecars. `load`: what the driver has measured."""
        versions = []
        for partition, sidecar in writers.items():
            version = Version(batch_id + 1, f"{sidecar.worker_id}-{batch_id}")
            versions.append(StoreVersion(StoreId(job, 0, partition, "default"), version))
            sidecar.written.add(versions[-1])
        await self.report(job, batch_id, versions, run_id, load=load)

    async def report(
        self,
        job: str,
        batch_id: int,
        versions: list[StoreVersion],
        run_id: str = "run-1",
        floors: list[StoreVersion] | None = None,
        load: BatchLoad | None = None,
    ) -> None:
        """A batch that wrote these versions, which are the floors if no others are given."""
        measured = load or BatchLoad({})
        event = pb.BatchLogged(
            job=job,
            run_id=run_id,
            batch_id=batch_id,
            versions=[convert.store_version_to_pb(v) for v in versions],
            floors=[
                common_pb2.Floor(version=convert.store_version_to_pb(v))
                for v in (versions if floors is None else floors)
            ],
            work=[pb.NodeWork(partition=p, task_s=task_s) for p, task_s in measured.task_s.items()],
            batch_s=measured.batch_s,
            trigger_s=measured.trigger_s,
            input_rows=measured.rows,
            lags=[
                pb.SourceLag(source=source, unit="offsets", behind=behind, read=read)
                for source, (behind, read) in measured.lags.items()
            ],
        )
        await self._call.write(pb.DriverEvent(batch_logged=event))

    async def ended(self, job: str, run_id: str = "run-1") -> None:
        await self._call.write(pb.DriverEvent(query_ended=pb.QueryEnded(job=job, run_id=run_id)))

    async def idle(self, job: str, run_id: str = "run-1") -> None:
        """No batch runs, and the next one goes by the newest map that was sent."""
        epoch = self.maps[job].configuration_epoch
        event = pb.QueryIdle(job=job, run_id=run_id, configuration_epoch=epoch)
        await self._call.write(pb.DriverEvent(query_idle=event))

    def hosts(self, job: str, partition: int) -> list[str]:
        """Hosts of a virtual node's workers in the newest map; empty when it is not there."""
        its = self.maps.get(job, pb.DesiredLocations())
        found = next((loc for loc in its.locations if loc.partition == partition), pb.Location())
        return [its.workers[index].host for index in found.worker_indexes]

    async def stop(self) -> None:
        self._call.cancel()
        if self._reader is not None:
            await asyncio.gather(self._reader, return_exceptions=True)
        await self._channel.close(None)
