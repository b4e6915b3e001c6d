"""Parts of the tests of service that other tests use as well."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from rhino_core.ids import GroupId
from rhino_core.rpc.channel import aio_channel
from rhino_pb import handover_pb2 as pb
from rhino_pb import handover_pb2_grpc, replication_pb2, replication_pb2_grpc
from tests.handover_manager.cluster import TIMEOUT_S, FakeDriver, FakeSidecar, Manager, eventually, until

JOB = "5c0f2f5e-job"


G0, G1 = GroupId(JOB, 0, 0), GroupId(JOB, 0, 1)


Request = pb.HandoverRequest


class Scene:
    """Three workers, one query of two partitions: 0/0 and 0/1 owned by w1."""

    def __init__(self, folder: Path) -> None:
        self.manager = Manager(folder)
        self.sidecars: dict[str, FakeSidecar] = {}
        self.batch_id = -1

    async def open(self) -> None:
        await self.manager.start()
        self.channel = aio_channel(self.manager.address)
        self.stub = handover_pb2_grpc.HandoverManagerStub(self.channel)
        self.replication = replication_pb2_grpc.ReplicationManagerStub(self.channel)
        for name in ("w1", "w2", "w3"):
            self.sidecars[name] = FakeSidecar(name, self.manager.address)  # type: ignore[abstract]
            await self.sidecars[name].start()
        self.driver = FakeDriver(self.manager.address, factor=1)
        await self.driver.hello()
        await self.driver.started(JOB, 2, name="clicks")
        for group in (G0, G1):
            await self.sidecars["w1"].own(group)
        await until(lambda: self.driver.hosts(JOB, 1)[:1] == ["host-w1"], "w1 is desired")
        for partition in (0, 1):
            await until(lambda p=partition: len(self.driver.hosts(JOB, p)) == 2, "there is a fallback")  # type: ignore[misc]

    async def close(self) -> None:
        await self.driver.stop()
        await asyncio.gather(*[sidecar.stop() for sidecar in self.sidecars.values()])
        await self.channel.close(None)
        await self.manager.stop()

    def secondary(self, partition: int) -> str:
        """The worker that holds the copies of a virtual node."""
        return self.driver.hosts(JOB, partition)[1].removeprefix("host-")

    def stranger(self, partition: int) -> str:
        """The worker that holds nothing of it."""
        return next(w for w in ("w2", "w3") if w != self.secondary(partition))

    async def run_batch(self, **elsewhere: str) -> None:
        """A batch that Spark ran where the map says, except for p0=... or p1=..."""
        self.batch_id += 1
        writers = {
            p: self.sidecars[elsewhere.get(f"p{p}") or self.driver.hosts(JOB, p)[0].removeprefix("host-")]
            for p in (0, 1)
        }
        await self.driver.logged(JOB, self.batch_id, writers)

    async def start(self, target: str, *nodes: str, deadline_s: float = 30) -> pb.HandoverStatus:
        request = Request(job="clicks", virtual_nodes=nodes, target=target, deadline_s=deadline_s)
        status: pb.HandoverStatus = await self.stub.StartHandover(request, timeout=TIMEOUT_S)
        return status

    async def watch(self, handover_id: str) -> list[pb.HandoverStatus]:
        request = pb.WatchHandoverRequest(handover_id=handover_id)
        return [status async for status in self.stub.WatchHandover(request, timeout=TIMEOUT_S)]

    async def job(self) -> pb.JobStatus:
        reply = await self.stub.ListJobs(pb.ListJobsRequest(), timeout=TIMEOUT_S)
        return next(job for job in reply.jobs if job.job == JOB)

    async def reported(self, worker: str, expected: Callable[[replication_pb2.WorkerStatus], bool]) -> None:
        """Waits until what the replication manager says of a worker is as expected."""

        async def seen() -> bool:
            reply = await self.replication.ListWorkers(replication_pb2.ListWorkersRequest(), timeout=TIMEOUT_S)
            return any(expected(w) for w in reply.workers if w.worker.worker_id == worker)

        await eventually(seen, f"worker {worker} is as expected")

    async def set_free_bytes(self, worker: str, free_bytes: int) -> None:
        self.sidecars[worker].free_bytes = free_bytes
        await self.reported(worker, lambda w: w.free_bytes == free_bytes)

    async def owner(self, group: GroupId) -> str:
        return (await self.members(group))[0]

    async def members(self, group: GroupId) -> list[str]:
        reply = await self.replication.DescribeGroups(replication_pb2.DescribeGroupsRequest(job=JOB), timeout=TIMEOUT_S)
        found = next(g for g in reply.groups if g.group.group.partition == group.partition)
        return [m.worker.worker_id for m in found.group.members]
