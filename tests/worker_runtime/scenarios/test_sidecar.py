"""Three real sidecars: real gRPC, real files, real RocksDB, real kill -9; only the manager is a fake."""

from __future__ import annotations

import asyncio
import signal
from dataclasses import replace
from pathlib import Path

import grpc
import pytest

from rhino_core.ids import StoreId, StoreVersion, Version
from rhino_pb import sidecar_pb2
from tests.rhino_core.support.metrics import free_port
from tests.worker_runtime.cluster import Client, Cluster, changelog_bytes, zip_bytes
from tests.worker_runtime.proxy import Proxy
from tests.worker_runtime.scenario import STORE, version
from tests.worker_runtime.support.sidecar import write
from worker_runtime.protocol.versions.closure import changelog_name

READY, UNAVAILABLE, LOST = (
    sidecar_pb2.PREPARE_STATE_READY,
    sidecar_pb2.PREPARE_STATE_UNAVAILABLE,
    sidecar_pb2.PREPARE_STATE_LOST,
)


async def test_commit_goes_through_the_chain_and_is_visible_everywhere(cluster: Cluster) -> None:
    a, b, c = await cluster.start("a", "b", "c")
    async with a.attach(replicas=2) as client, b.attach() as at_b, c.attach() as at_c:
        reply = await client.commit(STORE, version(1), changelog_bytes(1), [])
        assert reply.copies >= 2
        assert await client.names(STORE) == [changelog_name(version(1))]
        # Commit needs two copies; the third may be on its way still.
        reports, third = cluster.manager.reports, ("c", STORE.group)
        await cluster.manager.until(lambda: third in reports and bool(reports[third].newest_held))
        for other in (at_b, at_c):
            prepared = await other.prepare(STORE, version(1))
            assert (prepared.state, prepared.source) == (READY, sidecar_pb2.SOURCE_REPLICA)
            content = other.path(STORE, changelog_name(version(1))).read_bytes()
            assert content == changelog_bytes(1)
        assert (await client.prepare(STORE, version(1))).source == sidecar_pb2.SOURCE_LOCAL
        assert (await client.prepare(STORE, Version(0, ""))).source == sidecar_pb2.SOURCE_EMPTY


async def test_snapshot_with_data_files_reaches_the_replica_whole(cluster: Cluster) -> None:
    a, b = await cluster.start("a", "b")
    async with a.attach() as client, b.attach() as at_b:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await client.commit(STORE, version(3), zip_bytes("000001-x.sst"), [], end="zip")
        assert refused.value.code() is grpc.StatusCode.FAILED_PRECONDITION
        big = changelog_bytes(7, 3_000_000)
        await client.add(STORE, "SSTs/000001-x.sst", big)
        reply = await client.commit(STORE, version(3), zip_bytes("000001-x.sst"), [], end="zip")
        assert reply.copies == 2
        assert await at_b.names(STORE) == ["3_id3.zip", "SSTs/000001-x.sst"]
        assert at_b.path(STORE, "SSTs/000001-x.sst").read_bytes() == big
        assert (await at_b.prepare(STORE, version(3))).source == sidecar_pb2.SOURCE_REPLICA


async def test_killed_replica_comes_back_and_gets_what_it_missed(cluster: Cluster) -> None:
    a, b = await cluster.start("a", "b")
    async with a.attach() as client:
        await write(client, 3)
        await b.end(signal.SIGKILL)
        cluster.manager.lose("b", absent=True)
        cluster.manager.set_group(STORE.group, "a")
        await write(client, 5, start=4)
        await b.start()
        cluster.manager.set_group(STORE.group, "a", "b", whole="a")
        await cluster.manager.until_whole(STORE.group)
        assert (await client.commit(STORE, version(6), b"x", [version(n) for n in range(1, 6)])).copies == 2
    async with b.attach() as at_b:
        reply = await at_b.prepare(STORE, version(6))
        assert (reply.state, reply.source, reply.fetched_bytes) == (READY, sidecar_pb2.SOURCE_REPLICA, 0)


async def test_killed_writer_keeps_what_it_acknowledged(cluster: Cluster) -> None:
    (a,) = await cluster.start("a")
    async with a.attach(replicas=0) as client:
        await write(client, 3)
        incarnation = a.worker
    await a.end(signal.SIGKILL)
    await a.start()
    assert a.worker is not None
    assert incarnation is not None
    assert a.worker.incarnation == incarnation.incarnation
    async with a.attach(replicas=0) as client:
        reply = await client.prepare(STORE, version(3))
        assert (reply.state, reply.source) == (READY, sidecar_pb2.SOURCE_LOCAL)
        assert not list(a.settings.data_dir.joinpath("tmp").iterdir())


async def test_kill_in_the_midst_of_commits_loses_nothing_acknowledged(cluster: Cluster) -> None:
    a, b = await cluster.start("a", "b")
    acknowledged: list[StoreVersion] = []

    async def go_on(client: Client, store: StoreId) -> None:
        for number in range(1, 10_000):
            lineage = [version(n) for n in range(1, number)]
            await client.commit(store, version(number), changelog_bytes(number), lineage)
            acknowledged.append(StoreVersion(store, version(number)))

    stores = [StoreId("job", operator, 0, "default") for operator in range(4)]
    async with a.attach() as client:
        writers = [asyncio.create_task(go_on(client, store)) for store in stores]
        while len(acknowledged) < 60:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        await a.end(signal.SIGKILL)
        await asyncio.gather(*writers, return_exceptions=True)
    assert len(acknowledged) >= 60
    await a.start()
    for process in (a, b):
        async with process.attach() as client:
            for store in stores:
                newest = max(v.version for v in acknowledged if v.store == store)
                reply = await client.prepare(store, newest)
                assert (reply.state, reply.fetched_bytes) == (READY, 0)


async def test_new_member_catches_up_while_the_writer_goes_on(cluster: Cluster) -> None:
    a, _, c = await cluster.start("a", "b", "c")
    async with a.attach() as client:
        await client.add(STORE, "SSTs/000001-x.sst", changelog_bytes(1, 100_000))
        await client.commit(STORE, version(1), zip_bytes("000001-x.sst"), [], end="zip")
        for number in range(2, 6):
            await client.commit(STORE, version(number), changelog_bytes(number), [version(n) for n in range(1, number)])
        cluster.manager.set_group(STORE.group, "a", "b", "c", whole="a,b", required=2)
        for number in range(6, 12):
            await client.commit(STORE, version(number), changelog_bytes(number), [version(n) for n in range(1, number)])
        await cluster.manager.until_whole(STORE.group)
        # Commit needs two copies; the third of the last version may be on its way still.
        reports, third = cluster.manager.reports, ("c", STORE.group)
        await cluster.manager.until(lambda: any(v.version.version == 11 for v in reports[third].newest_held))
    async with c.attach() as at_c:
        reply = await at_c.prepare(STORE, version(11))
        assert (reply.state, reply.source, reply.fetched_bytes) == (READY, sidecar_pb2.SOURCE_REPLICA, 0)


async def test_prepare_fetches_from_another_worker(cluster: Cluster) -> None:
    a, _, c = await cluster.start("a", "b", "c")
    async with a.attach() as client, c.attach() as at_c:
        await write(client, 3)
        reply = await at_c.prepare(STORE, version(3))
        assert (reply.state, reply.source) == (READY, sidecar_pb2.SOURCE_REMOTE)
        assert reply.fetched_bytes == 6000
        assert (await at_c.prepare(STORE, version(3))).source == sidecar_pb2.SOURCE_REPLICA
        described = await at_c.describe()
        assert dict(described.prepares_by_source) == {"remote": 1, "replica": 1}
        assert [record.held_before for record in described.prepares] == [False, True]


async def test_a_guest_writes_with_the_copies_of_the_members(cluster: Cluster) -> None:
    a, _, c = await cluster.start("a", "b", "c")
    async with a.attach() as client, c.attach() as guest:
        await write(client, 2)
        await guest.prepare(STORE, version(2))
        reply = await guest.commit(STORE, version(3), b"by a guest", [version(1), version(2)])
        assert reply.copies == 2
        assert (await client.prepare(STORE, version(3))).source == sidecar_pb2.SOURCE_REPLICA


async def test_lost_only_when_everybody_has_answered(cluster: Cluster) -> None:
    a, b, _ = await cluster.start("a", "b", "c")
    async with a.attach() as client:
        reply = await client.prepare(STORE, version(9))
        assert reply.state == LOST
        await b.end(signal.SIGKILL)
        reply = await client.prepare(STORE, version(9))
        assert reply.state == UNAVAILABLE
        assert "b" in reply.message
        cluster.manager.lose("b", absent=True)
        await asyncio.sleep(0.2)  # the news travels
        assert (await client.prepare(STORE, version(9))).state == UNAVAILABLE


async def test_altered_file_is_fetched_again_and_without_a_holder_it_is_data_loss(cluster: Cluster) -> None:
    a, b = await cluster.start("a", "b")
    name = changelog_name(version(2))
    async with a.attach() as client:
        await write(client, 3)
        path = client.path(STORE, name)
        path.write_bytes(b"!" * 2000)
        reply = await client.prepare(STORE, version(3))
        assert (reply.state, reply.source, reply.fetched_bytes) == (READY, sidecar_pb2.SOURCE_REMOTE, 2000)
        assert path.read_bytes() == changelog_bytes(2)
        for process in (a, b):
            (process.settings.data_dir / "store" / "job" / "0" / "3" / "default" / name).write_bytes(b"?" * 2000)
        with pytest.raises(grpc.aio.AioRpcError) as lost:
            await client.prepare(STORE, version(3))
        assert lost.value.code() is grpc.StatusCode.DATA_LOSS


async def test_floor_collects_but_not_what_a_session_has_pinned(cluster: Cluster) -> None:
    (a,) = await cluster.start("a")
    gone = changelog_name(version(1))
    async with a.attach(replicas=0) as watcher:
        async with a.attach(replicas=0) as client:
            await write(client, 2)
            await client.add(STORE, "SSTs/000001-x.sst", b"sst")
            await client.commit(STORE, version(3), zip_bytes("000001-x.sst"), [], end="zip")
            await client.commit(STORE, version(4), b"4", [version(3)])
            await client.prepare(STORE, version(2))
            cluster.manager.set_floors(StoreVersion(STORE, version(4)))
            await asyncio.sleep(1.5)  # the collector looks a second after the floors
            assert gone in await watcher.names(STORE)
            inbox = Path(client.info.inbox)
        async with asyncio.timeout(5):
            while inbox.exists():  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        cluster.manager.set_floors(StoreVersion(STORE, version(4)), StoreVersion(STORE, version(4)))
        async with a.attach(replicas=0) as client:
            await client.commit(STORE, version(5), b"5", [version(3), version(4)])
        cluster.manager.set_floors(StoreVersion(STORE, version(5)))
        async with asyncio.timeout(10):
            while gone in await watcher.names(STORE):  # noqa: ASYNC110
                await asyncio.sleep(0.1)
        assert await watcher.names(STORE) == ["3_id3.zip", "4_id4.changelog", "5_id5.changelog", "SSTs/000001-x.sst"]


async def test_commits_go_on_without_a_manager_and_a_clean_stop_says_farewell(cluster: Cluster) -> None:
    a, b = await cluster.start("a", "b")
    async with a.attach() as client:
        await write(client, 1)
        assert await b.end(signal.SIGTERM) == 0
        assert cluster.manager.left == ["b"]
        await b.start()
        await cluster.manager.stop()
        await write(client, 3, start=2)


async def test_waits_for_a_manager_that_is_not_there_yet(cluster: Cluster) -> None:
    port = int(cluster.address.rpartition(":")[2])
    await cluster.manager.stop()
    a = cluster.make("a")
    await a.start(wait=False)
    await asyncio.sleep(1.0)
    await cluster.manager.start(port)
    await a.ready()


async def test_commit_times_out_without_copies_and_stays_hidden(cluster: Cluster) -> None:
    a, b = await cluster.start("a", "b")
    async with a.attach() as client:
        await write(client, 1)
    await b.end(signal.SIGKILL)
    async with a.attach(commit_timeout_s=1.0) as client:
        with pytest.raises(grpc.aio.AioRpcError) as failed:
            await client.commit(STORE, version(2), b"2", [version(1)])
        assert failed.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        assert await client.names(STORE) == [changelog_name(version(1))]


async def test_a_commit_may_say_how_long_it_waits(cluster: Cluster) -> None:
    a, b = await cluster.start("a", "b")
    await b.end(signal.SIGKILL)
    async with a.attach(commit_timeout_s=50.0) as client:
        for timeout_s, code in ((0.2, grpc.StatusCode.DEADLINE_EXCEEDED), (-1.0, grpc.StatusCode.INVALID_ARGUMENT)):
            with pytest.raises(grpc.aio.AioRpcError) as failed:
                await client.commit(STORE, version(1), b"1", [], timeout_s=timeout_s)
            assert failed.value.code() is code


@pytest.mark.parametrize("end", ["changelog", "zip"])
async def test_a_stop_waits_for_what_tasks_wait_for_and_for_no_snapshot(cluster: Cluster, end: str) -> None:
    a, b = await cluster.start("a", "b")
    async with a.attach(commit_timeout_s=50.0) as client:
        await write(client, 1)
        await b.end(signal.SIGKILL)
        content = zip_bytes() if end == "zip" else b"2"
        commit = asyncio.ensure_future(client.commit(STORE, version(2), content, [version(1)], end=end))
        path = client.path(STORE, f"{version(2)}.{end}")
        async with asyncio.timeout(10):
            while not path.exists():  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        await a.end(signal.SIGTERM)
        with pytest.raises(grpc.aio.AioRpcError):
            await commit
    log = (a.settings.data_dir.parent / "log").read_text()
    assert ("commits are still waiting for copies" in log) == (end == "changelog"), log


async def test_a_member_that_is_stopped_while_it_catches_up_ends_and_goes_on_later(cluster: Cluster) -> None:
    """Catch-ups begin before, during and after its stop: the group changes all the time."""
    a, _ = await cluster.start("a", "b")
    c = cluster.make("c", catch_up_bytes_per_s=2_000_000)
    await c.start()
    data = [f"SSTs/{number:06d}-x.sst" for number in range(1, 13)]
    async with a.attach() as client:
        for number, name in enumerate(data):
            await client.add(STORE, name, changelog_bytes(number, 300_000))
        await client.commit(STORE, version(1), zip_bytes(*(Path(name).name for name in data)), [], end="zip")
        for _ in range(4):
            cluster.manager.set_group(STORE.group, "a", "b", "c", whole="a,b", required=2)
            fetched = len(list(c.settings.data_dir.rglob("*.sst")))
            async with asyncio.timeout(20):
                while len(list(c.settings.data_dir.rglob("*.sst"))) == fetched < len(data):  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
            ending = asyncio.ensure_future(c.end(signal.SIGTERM))
            while not ending.done():
                cluster.manager.set_group(STORE.group, "a", "b", "c", whole="a,b", required=2)
                await asyncio.sleep(0.005)
            assert ending.result() == 0, (c.settings.data_dir.parent / "log").read_text()
            await c.start()
        await cluster.manager.until_whole(STORE.group)


async def test_a_full_replica_delays_a_commit_until_it_has_room(cluster: Cluster) -> None:
    (a,) = await cluster.start("a")
    (b,) = await cluster.start("b", reserve_bytes=1 << 60)
    async with a.attach(commit_timeout_s=1.5) as client:
        with pytest.raises(grpc.aio.AioRpcError) as failed:
            await client.commit(STORE, version(1), changelog_bytes(1), [])
        assert failed.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    async with b.attach() as at_b:
        with pytest.raises(grpc.aio.AioRpcError) as full:
            await at_b.commit(STORE, version(1), b"x", [])
        assert full.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    await b.end(signal.SIGTERM)
    b.settings = replace(b.settings, reserve_bytes=0)
    await b.start()
    async with a.attach() as client:
        assert (await client.commit(STORE, version(1), changelog_bytes(1), [])).copies == 2


async def test_others_reach_a_sidecar_at_its_advertised_address(cluster: Cluster) -> None:
    """As with a container whose ports are mapped: the host is another one, and so is the port for calls."""
    async with Proxy() as proxy:
        listen = f"127.0.0.1:{free_port()}"
        proxy.forward(listen)
        b = cluster.make("b", listen=listen, advertise=proxy.address, push_port=proxy.push_port)
        await asyncio.gather(b.start(), cluster.make("a").start())
        assert b.worker is not None
        assert b.worker.peer_address == proxy.address
        async with cluster.sidecars["a"].attach(replicas=1) as client:
            reply = await client.commit(STORE, version(1), changelog_bytes(1), [])
            assert reply.copies == 2
            proxy.cut_after_bytes = 0  # nothing reaches b around the proxy
            with pytest.raises(grpc.aio.AioRpcError):
                await client.commit(STORE, version(2), changelog_bytes(2), [version(1)], timeout_s=3)


async def test_prepare_checks_what_takes_the_place_of_a_damaged_snapshot(cluster: Cluster) -> None:
    """Seed 9671: without the snapshot, the version is opened from changelogs, of which one was damaged, too."""
    a, b = await cluster.start("a", "b")
    async with a.attach(replicas=1) as client, b.attach(replicas=1) as at_b:
        await write(client, 3)
        snapshot = zip_bytes()
        await client.commit(STORE, version(2), snapshot, [version(1)], end="zip")
        for name in ("2_id2.zip", "2_id2.changelog"):
            path = at_b.path(STORE, name)
            path.write_bytes(bytes(path.stat().st_size))
        prepared = await at_b.prepare(STORE, version(3))
        assert (prepared.state, prepared.source) == (READY, sidecar_pb2.SOURCE_REMOTE)
        assert at_b.path(STORE, "2_id2.zip").read_bytes() == snapshot
        assert all(at_b.path(STORE, name).read_bytes().strip(b"\0") for name in await at_b.names(STORE))
