"""The ReplicationManager service over real gRPC, with sidecars that only talk."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, TypeAlias

import grpc
import grpc.aio
import pytest

from replication_manager.rpc.service import ReplicationService
from rhino.journal import Journal
from rhino.rpc.channel import aio_channel
from rhino.rpc.server import Server
from rhino.settings import ManagerSettings
from rhino_pb import common_pb2, replication_pb2, replication_pb2_grpc

Stub: TypeAlias = Any  # the stubs do not tell the asyncio one apart
GROUP = common_pb2.GroupId(job="job", operator=0, partition=1)


@asynccontextmanager
async def manager(folder: Path, *, bootstrap: bool = True) -> AsyncIterator[Stub]:
    journal = Journal(folder, bootstrap=bootstrap)
    server = Server()
    service = ReplicationService(journal, ManagerSettings(folder, "127.0.0.1:0", 0.05, 1.0, 0.2))
    service.attach(server)
    port = server.bind("127.0.0.1:0")
    await server.start()
    running = asyncio.create_task(service.run())
    channel = aio_channel(f"127.0.0.1:{port}")
    try:
        yield replication_pb2_grpc.ReplicationManagerStub(channel)
    finally:
        await channel.close(None)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await server.stop(0)
        journal.close()


def worker(name: str) -> common_pb2.Worker:
    return common_pb2.Worker(worker_id=name, incarnation=f"{name}/1", host=name, peer_address=f"{name}:1")


@asynccontextmanager
async def sidecar(stub: Stub, name: str) -> AsyncIterator[None]:
    """Registers and beats until the block ends; then its stream breaks."""
    await stub.Register(replication_pb2.RegisterRequest(worker=worker(name), process_id=name), timeout=5)

    async def beats() -> AsyncIterator[replication_pb2.HeartbeatRequest]:
        while True:
            yield replication_pb2.HeartbeatRequest(worker_id=name, incarnation=f"{name}/1")
            await asyncio.sleep(0.05)

    stream = stub.Heartbeat(beats(), timeout=60)
    try:
        await stream.read()
        yield
    finally:
        stream.cancel()


async def resolve(stub: Stub, name: str) -> Any:
    request = replication_pb2.ResolveGroupRequest(group=GROUP, worker_id=name)
    return (await stub.ResolveGroup(request, timeout=5)).group


async def test_a_lost_member_is_replaced_and_watchers_hear_of_it(tmp_path: Path) -> None:
    async with manager(tmp_path) as stub, AsyncExitStack() as stack:
        for name in ("a", "b"):
            await stack.enter_async_context(sidecar(stub, name))
        lost = await stack.enter_async_context(AsyncExitStack())
        await lost.enter_async_context(sidecar(stub, "c"))
        group = await resolve(stub, "c")
        heir = group.members[1].worker.worker_id
        watch = stub.WatchGroups(
            replication_pb2.WatchGroupsRequest(worker_id=heir, incarnation=f"{heir}/1"), timeout=20
        )
        first = await watch.read()
        assert first.snapshot
        assert [g.group for g in first.groups] == [GROUP]
        assert {w.worker_id for w in first.workers} == {"a", "b", "c"}
        await lost.aclose()
        async with asyncio.timeout(10):
            while True:
                update = await watch.read()
                if update.groups and "c" not in [m.worker.worker_id for m in update.groups[0].members]:
                    break
        new = update.groups[0]
        assert new.members[0].worker.worker_id == heir
        assert [m.whole for m in new.members] == [True, False]
        assert new.required_copies == 1
        assert [w.worker_id for w in update.absent] == ["c"]
        watch.cancel()


async def test_a_restart_keeps_groups_and_raises_the_generation(tmp_path: Path) -> None:
    async with manager(tmp_path) as stub, sidecar(stub, "a"), sidecar(stub, "b"):
        before = await resolve(stub, "a")
        first = await stub.ListWorkers(replication_pb2.ListWorkersRequest(), timeout=5)
    async with manager(tmp_path, bootstrap=False) as stub:
        after = await stub.DescribeGroups(replication_pb2.DescribeGroupsRequest(job="job"), timeout=5)
        second = await stub.ListWorkers(replication_pb2.ListWorkersRequest(), timeout=5)
    assert [g.group for g in after.groups] == [before]
    assert second.generation == first.generation + 1
    assert {w.state for w in second.workers} == {replication_pb2.WORKER_STATE_SUSPECT}


async def test_refusals_have_their_status_codes(tmp_path: Path) -> None:
    async with manager(tmp_path) as stub, sidecar(stub, "a"):
        calls = [
            (resolve(stub, "a"), grpc.StatusCode.FAILED_PRECONDITION),
            (resolve(stub, "nobody"), grpc.StatusCode.UNAVAILABLE),
            (
                stub.Register(replication_pb2.RegisterRequest(worker=worker("a"), process_id="other"), timeout=5),
                grpc.StatusCode.ALREADY_EXISTS,
            ),
            (
                stub.ChangeGroup(replication_pb2.ChangeGroupRequest(group=GROUP, add_member="a"), timeout=5),
                grpc.StatusCode.NOT_FOUND,
            ),
        ]
        attempt: Any
        for attempt, code in calls:
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await attempt
            assert caught.value.code() is code
