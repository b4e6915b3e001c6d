"""A registered worker outside of a group, and a certificate whose worker never registered: they plant and read nothing.

With certificates and encrypted pushes. The outsider is a real sidecar, whose certificate the test uses.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest
from crc32c import crc32c

from rhino_core.errors import AccessDeniedError, UnavailableError
from rhino_core.ids import FileEntry, Lane, StoreId, StoreVersion, Worker
from rhino_core.rpc.channel import aio_channel, call, worker_channel
from rhino_core.rpc.convert import epoch_of, epoch_to_pb, file_to_pb, group_to_pb, store_to_pb, store_version_to_pb
from rhino_core.security.choice import client_transport
from rhino_core.security.identity import Role
from rhino_core.security.transport import THE_MANAGER
from rhino_pb import common_pb2, handover_pb2_grpc, peer_pb2, peer_pb2_grpc
from rhino_pb import handover_pb2 as pb
from tests.worker_runtime.cluster import Process, changelog_bytes
from tests.worker_runtime.pushing import collect, data_frame
from tests.worker_runtime.support.certificates import Folders, folders, secure_cluster
from tests.worker_runtime.support.with_manager import lineage, version
from worker_runtime.push.core.framing import packed
from worker_runtime.push.opening import Opening, chosen

__all__ = ["folders"]
pytestmark = pytest.mark.timeout(200)
STORE = StoreId("job", 0, 3, "default")


@asynccontextmanager
async def running_query(address: str, folders: Folders, *executors: str) -> AsyncIterator[None]:
    """A driver whose query has executors beside these workers."""
    transport = client_transport(folders.of(Role.DRIVER, "etl"), "")
    async with aio_channel(address, transport, THE_MANAGER) as channel:
        session: Any = cast("Any", handover_pb2_grpc.HandoverManagerStub(channel)).DriverSession()
        hello = pb.DriverHello(application_id="app", host="h", settings=common_pb2.JobSettings())
        await session.write(pb.DriverEvent(hello=hello))
        for number, worker_id in enumerate(executors):
            executor = pb.ExecutorChanged(executor_id=str(number), host="elsewhere", worker_id=worker_id)
            await session.write(pb.DriverEvent(executor_changed=executor))
        groups = [pb.TaskGroup(task_group=0, operators=[0], partitions=4)]
        started = pb.QueryStarted(job=STORE.job, run_id="r", name="q", task_groups=groups)
        await session.write(pb.DriverEvent(query_started=started))
        while (await session.read()).WhichOneof("command") != "desired":
            pass
        yield
        session.cancel()


class Outsider:
    """Calls and pushes with the certificate of one worker."""

    def __init__(self, folders: Folders, name: str) -> None:
        self._transport = client_transport(folders.of(Role.WORKER, name), "")

    async def _call(self, to: Worker, method: str, request: Any) -> Any:
        async with worker_channel(to, self._transport) as channel:
            stub = peer_pb2_grpc.PeerStub(channel)
            return await call(method, lambda: getattr(stub, method)(request, timeout=10))

    async def inventory(self, to: Worker) -> peer_pb2.InventoryReply:
        request = peer_pb2.InventoryRequest(group=group_to_pb(STORE.group))
        return cast("peer_pb2.InventoryReply", await self._call(to, "Inventory", request))

    async def check(self, to: Worker) -> None:
        versions = [store_version_to_pb(StoreVersion(STORE, version(1)))]
        await self._call(to, "CheckVersions", peer_pb2.CheckVersionsRequest(versions=versions))

    async def fetch(self, to: Worker, name: str) -> bytes:
        async def read(stub: Any) -> bytes:
            request = peer_pb2.FetchRequest(store=store_to_pb(STORE), name=name)
            return b"".join([chunk.data async for chunk in stub.Fetch(request, timeout=10)])

        async with worker_channel(to, self._transport) as channel:
            return await call("Fetch", lambda: read(peer_pb2_grpc.PeerStub(channel)))

    async def push(self, me: Worker, to: Worker, name: str, content: bytes, epoch: Any) -> peer_pb2.PushReply:
        """Pushes a file, and returns the answer to it."""
        connection = await Opening(self._transport, chosen(self._transport, "")).connect(me, to, Lane.COMMIT)
        try:
            replies = collect(connection)
            entry = FileEntry(STORE, name, len(content), crc32c(content), lineage=tuple(lineage(2)), written_by="a")
            begin = peer_pb2.PushBegin(transfer=1, file=file_to_pb(entry), epoch=epoch_to_pb(epoch))
            async with asyncio.timeout(20):
                assert (await replies.get()).WhichOneof("reply") == "welcome"
                connection.post(packed(peer_pb2.PushFrame(begin=begin)))
                connection.post(data_frame(0, content))
                while (reply := await replies.get()).WhichOneof("reply") not in ("ack", "refusal"):
                    pass
            return reply
        finally:
            connection.close()


def worker_of(process: Process) -> Worker:
    assert process.worker is not None
    return process.worker


async def test_an_outsider_plants_and_reads_nothing(folders: Folders, tmp_path: Path) -> None:
    async with secure_cluster(folders, tmp_path, "a", "b", "x") as (address, (a, b, x)):
        async with running_query(address, folders, "a", "b"), a.attach() as client:
            await client.commit(STORE, version(1), changelog_bytes(1), lineage(1))
            outsider = Outsider(folders, "x")
            epoch = epoch_of((await outsider.inventory(worker_of(b))).epoch)
            assert epoch.generation > 0, "b is the other member, since executors run there"
            forged, name = b"forged", f"{version(2)}.changelog"
            for victim in (b, a):
                answer = await outsider.push(worker_of(x), worker_of(victim), name, forged, epoch)
                assert "x is no member, and no executor of the query runs there" in answer.refusal.message
            next_epoch = epoch._replace(counter=epoch.counter + 1)
            answer = await outsider.push(worker_of(x), worker_of(b), name, forged, next_epoch)
            assert "the manager has not named the epoch" in answer.refusal.message
            with pytest.raises(AccessDeniedError, match=r"worker 'x' may not have files of job/0/3"):
                await outsider.fetch(worker_of(b), f"{version(1)}.changelog")
            reply = await client.commit(STORE, version(2), changelog_bytes(2), lineage(2))
            assert reply.copies == 2
            for process in (a, b):
                stored = process.settings.data_dir / "store" / str(STORE) / name
                assert stored.read_bytes() == changelog_bytes(2)
            member = Outsider(folders, "b")
            assert await member.fetch(worker_of(a), f"{version(1)}.changelog") == changelog_bytes(1)
        log = (b.settings.data_dir.parent / "log").read_text()
        assert "asks for a group's files or sends some" in log


async def test_a_certificate_whose_worker_never_registered_reads_nothing(folders: Folders, tmp_path: Path) -> None:
    async with secure_cluster(folders, tmp_path, "a") as (_, (a,)):
        async with a.attach(replicas=0) as client:
            await client.commit(STORE, version(1), changelog_bytes(1), lineage(1))
        ghost, to = Outsider(folders, "ghost"), worker_of(a)
        for ask in (ghost.inventory(to), ghost.check(to), ghost.fetch(to, f"{version(1)}.changelog")):
            with pytest.raises(UnavailableError, match="'ghost' is not known here"):
                await ask
