"""The ReplicationManager service over real gRPC, with sidecars that only talk."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, TypeAlias

import grpc
import grpc.aio
import pytest

from replication_manager.rpc.service import ReplicationService
from rhino.errors import UnavailableError
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


async def watching(stub: Stub, name: str) -> Any:
    """The stream of `name`'s news, and its first message."""
    stream = stub.WatchGroups(replication_pb2.WatchGroupsRequest(worker_id=name, incarnation=f"{name}/1"), timeout=20)
    return stream, await stream.read()


def version(number: int) -> common_pb2.StoreVersion:
    store = common_pb2.StoreId(job="job", operator=0, partition=1, store="default")
    return common_pb2.StoreVersion(store=store, version=common_pb2.Version(version=number, checkpoint_id=f"x{number}"))


async def publish(stub: Stub, *, logged: int, floor: int) -> None:
    request = replication_pb2.PublishFloorsRequest(
        job="job", batch_id=logged - 1, logged=[version(logged)], floors=[common_pb2.Floor(version=version(floor))]
    )
    await stub.PublishFloors(request, timeout=5)


async def news(stream: Any, wanted: Callable[[Any], bool]) -> Any:
    """The first update for which `wanted` is true."""
    async with asyncio.timeout(10):
        while not wanted(update := await stream.read()):
            pass
    return update


async def test_a_new_member_gets_the_floors_and_one_that_was_cut_off_is_told(tmp_path: Path) -> None:
    async with manager(tmp_path) as stub, AsyncExitStack() as stack:
        for name in ("a", "b"):
            await stack.enter_async_context(sidecar(stub, name))
        group = await resolve(stub, "a")
        await publish(stub, logged=9, floor=4)
        await stack.enter_async_context(sidecar(stub, "c"))
        stream, first = await watching(stub, "c")
        assert (list(first.groups), list(first.floors)) == ([], [])
        change = replication_pb2.ChangeGroupRequest(group=GROUP, expected_epoch=group.epoch, add_member="c")
        await stub.ChangeGroup(change, timeout=5)
        joined = await news(stream, lambda update: len(update.groups) == 1)
        assert [m.whole for m in joined.groups[0].members] == [True, True, False]
        assert [floor.version for floor in joined.floors] == [version(4)]
        assert {w.worker_id for w in joined.workers} == {"a", "b", "c"}
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub.ChangeGroup(change, timeout=5)
        assert caught.value.code() is grpc.StatusCode.ABORTED
        await stub.ChangeGroup(replication_pb2.ChangeGroupRequest(group=GROUP, make_owner="a"), timeout=5)
        left = await news(stream, lambda update: len(update.left) == 1)
        assert list(left.left) == [GROUP]


async def test_who_stores_files_of_a_group_hears_of_it_until_they_are_gone(tmp_path: Path) -> None:
    """So that it can ask the members whether it may delete them."""
    async with manager(tmp_path) as stub, AsyncExitStack() as stack:
        for name in ("a", "b"):
            await stack.enter_async_context(sidecar(stub, name))
        group = await resolve(stub, "a")
        await stack.enter_async_context(sidecar(stub, "c"))
        stream, first = await watching(stub, "c")
        assert list(first.groups) == []
        await stores(stub, "c", 3)
        assert list((await news(stream, lambda update: len(update.groups) == 1)).groups) == [group]
        await stores(stub, "c", 0)
        await stub.ChangeGroup(replication_pb2.ChangeGroupRequest(group=GROUP, make_owner="b"), timeout=5)
        assert list((await news(stream, lambda update: len(update.left) == 1)).left) == [GROUP]


async def stores(stub: Stub, name: str, files: int) -> None:
    """Says so in a heartbeat."""
    report = replication_pb2.GroupReport(group=GROUP, stored_files=files)
    beat = replication_pb2.HeartbeatRequest(worker_id=name, incarnation=f"{name}/1", changed=[report])

    async def beats() -> AsyncIterator[replication_pb2.HeartbeatRequest]:
        yield beat

    async for _ in stub.Heartbeat(beats(), timeout=5):
        return


async def test_a_guest_hears_of_the_group_it_has_resolved(tmp_path: Path) -> None:
    async with manager(tmp_path) as stub, sidecar(stub, "a"), sidecar(stub, "b"), sidecar(stub, "c"):
        group = await resolve(stub, "a")
        guest = ({"b", "c"} - {group.members[1].worker.worker_id}).pop()
        stream, first = await watching(stub, guest)
        assert list(first.groups) == []
        assert await resolve(stub, guest) == group
        await publish(stub, logged=9, floor=4)
        assert [f.version for f in (await news(stream, lambda update: len(update.floors) == 1)).floors] == [version(4)]


async def beat_once(stub: Stub, name: str, *reports: replication_pb2.GroupReport, leaving: bool = False) -> None:
    beat = replication_pb2.HeartbeatRequest(
        worker_id=name, incarnation=f"{name}/1", changed=reports, leaving=leaving, stored_bytes=70, free_bytes=30
    )
    stream = stub.Heartbeat(timeout=5)
    await stream.write(beat)
    await stream.read()
    stream.cancel()


async def test_a_worker_that_leaves_is_lost_at_once_and_one_that_never_came_is_refused(tmp_path: Path) -> None:
    async with manager(tmp_path) as stub, sidecar(stub, "a"), sidecar(stub, "b"):
        group = await resolve(stub, "a")
        stream, _ = await watching(stub, "a")
        await beat_once(stub, "b", leaving=True)
        update = await news(stream, lambda update: len(update.groups) == 1)
        assert [m.worker.worker_id for m in update.groups[0].members] == ["a"]
        assert update.groups[0].epoch.counter > group.epoch.counter
        assert [w.worker_id for w in update.absent] == ["b"]
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await beat_once(stub, "nobody")
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE


async def test_a_group_is_described_with_lag_and_with_others_that_store_it(tmp_path: Path) -> None:
    async with manager(tmp_path) as stub, sidecar(stub, "a"), sidecar(stub, "b"), sidecar(stub, "c"):
        group = await resolve(stub, "a")
        second = group.members[1].worker.worker_id
        other = ({"b", "c"} - {second}).pop()
        await publish(stub, logged=8, floor=4)
        for name, newest in (("a", 9), (second, 7), (other, 3)):
            report = replication_pb2.GroupReport(
                group=GROUP, epoch=group.epoch, whole=True, stored_bytes=50, newest_held=[version(newest)]
            )
            await beat_once(stub, name, report)
        (found,) = (await stub.DescribeGroups(replication_pb2.DescribeGroupsRequest(job="job"), timeout=5)).groups
        assert found.lag_versions == 2
        assert list(found.logged) == [version(8)]
        assert [(m.worker.worker_id, m.newest_held[0].version.version) for m in found.members] == [
            ("a", 9),
            (second, 7),
        ]
        assert [(m.worker.worker_id, m.stored_bytes) for m in found.others] == [(other, 50)]
        absent = await stub.DescribeGroups(replication_pb2.DescribeGroupsRequest(job="another"), timeout=5)
        assert list(absent.groups) == []


async def test_nothing_is_told_that_could_not_be_journalled(tmp_path: Path) -> None:
    journal = Journal(tmp_path, bootstrap=True)
    service = ReplicationService(journal, ManagerSettings(tmp_path, "127.0.0.1:0"))
    running = asyncio.create_task(service.run())
    journal.close()
    request = replication_pb2.RegisterRequest(worker=worker("a"), process_id="a")
    context: Any = None
    with pytest.raises(Exception, match="closed"):
        await service.Register(request, context)
    with pytest.raises(UnavailableError, match="stopping"):
        await service.Register(request, context)
    with pytest.raises(Exception, match="closed"):
        await asyncio.wait_for(running, 5)
