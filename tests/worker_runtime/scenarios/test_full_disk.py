"""Real sidecars and the real manager: one worker's disk is full, or fails."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import pytest
from rich.console import Console

from rhino.cli.status import render
from rhino.client.overview import Overview, WorkerView, fetch_overview
from rhino_core.ids import StoreId, StoreVersion
from rhino_core.setting import MIB
from rhino_pb import common_pb2, sidecar_pb2
from tests.handover_manager.cluster import FakeDriver
from tests.worker_runtime import cluster as cluster_module
from tests.worker_runtime.cluster import MAIN, Cluster, changelog_bytes, zip_bytes
from tests.worker_runtime.support.with_manager import STORE, group_of, lineage, manager, settings_of, version
from tests.worker_runtime.tmpfs import fill, read_only, tmpfs

MARKER = "break-the-disk"  # while this file is in the data folder, renames into the store fail
BROKEN = f"""
import errno, os, pathlib
_rename = os.rename
def rename(source, target, *rest, **more):
    if "/store/" in str(target) and pathlib.Path(str(target).split("/store/")[0], "{MARKER}").exists():
        raise OSError(errno.EIO, os.strerror(errno.EIO), str(target))
    return _rename(source, target, *rest, **more)
os.rename = rename
"""


async def until(address: str, worker_id: str, condition: Callable[[WorkerView], bool]) -> Overview:
    async with asyncio.timeout(20):
        while True:
            overview = await asyncio.to_thread(fetch_overview, address)
            if any(w.worker_id == worker_id and condition(w) for w in overview.workers):
                return overview
            await asyncio.sleep(0.05)


def members(overview: Overview, store: StoreId) -> list[str]:
    return next([m.worker_id for m in g.members] for g in overview.groups if g.group == store.group)


@asynccontextmanager
async def floor_published(address: str, number: int) -> AsyncIterator[None]:
    """By a driver whose batch wrote this version."""
    driver = FakeDriver(address, factor=0)
    await driver.hello()
    await driver.started(STORE.job, STORE.partition + 1)
    await driver.report(STORE.job, number - 1, [StoreVersion(STORE, version(number))])
    try:
        yield
    finally:
        await driver.stop()


async def test_a_full_worker_refuses_new_files_goes_on_otherwise_and_comes_back(
    cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with tmpfs(tmp_path / "b", 48) as disk:
        cluster.folder = tmp_path
        async with asyncio.timeout(120), manager(settings_of(tmp_path)) as address, Cluster(tmp_path) as others:
            cluster.address = others.address = address
            (disk / "node").mkdir()
            others.folder = disk / "node"
            a, c = await cluster.start("a", "c")
            (b,) = await others.start("b", reserve_bytes=8 * MIB)
            async with b.attach() as client:
                await client.commit(STORE, version(1), changelog_bytes(1), [])
                for number in range(2, 5):
                    await client.commit(STORE, version(number), changelog_bytes(number), lineage(number))
                ballast = fill(disk, 6 * MIB)
                full = await until(address, "b", lambda w: w.disk == "full")
                commit = client.commit(STORE, version(5), b"5", lineage(5))
                for attempt in (commit, client.add(STORE, "SSTs/000001-x.sst", b"x")):
                    with pytest.raises(grpc.aio.AioRpcError) as refused:
                        await attempt
                    assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
                    details = str(refused.value.details())
                    assert str(disk) in details
                    assert "bytes free" in details
                    assert f"{8 * MIB} to be kept (--reserve-mb)" in details
                reply = await client.prepare(STORE, version(4))
                assert (reply.state, reply.source) == (sidecar_pb2.PREPARE_STATE_READY, sidecar_pb2.SOURCE_LOCAL)
                described = await client.describe()
                assert described.disk == common_pb2.DISK_STATE_FULL
                render(full, Console(width=200))
                assert "disk full" in capsys.readouterr().out

                async with a.attach() as writer:
                    for partition in range(4):
                        store = StoreId("job", 1, partition, "default")
                        await writer.commit(store, version(1), b"1", [])
                        overview = await asyncio.to_thread(fetch_overview, address)
                        assert members(overview, store) == ["a", "c"]
                    overview = await asyncio.to_thread(fetch_overview, address)
                    *others_of_b, last = members(overview, STORE)
                    assert last == "b", "it owns nothing any more, and stays a member"
                    committed = await writer.commit(STORE, version(5), b"a", lineage(5))
                    assert committed.copies == 1, "nobody waits for it, and no copy is moved for a full disk"

                ballast.unlink()
                await until(address, "b", lambda w: (w.disk, w.disk_message) == ("ok", ""))
                await group_of(address, *others_of_b, "b")
                assert (await client.prepare(STORE, version(5))).source == sidecar_pb2.SOURCE_REPLICA
                more = [*lineage(5), version(5)]
                assert (await client.commit(STORE, version(6), b"6", more)).copies >= 2
        assert c.worker is not None


async def test_files_below_the_floor_are_deleted_on_a_full_disk(cluster: Cluster, tmp_path: Path) -> None:
    with tmpfs(tmp_path / "b", 48) as disk:
        async with asyncio.timeout(120), manager(settings_of(tmp_path)) as address, Cluster(disk) as small:
            small.address = address
            (b,) = await small.start("b", reserve_bytes=8 * MIB)
            async with b.attach(replicas=0) as client:
                await client.commit(STORE, version(1), changelog_bytes(1), [])
                await client.commit(STORE, version(2), zip_bytes(), [], end="zip")
                await client.commit(STORE, version(3), changelog_bytes(3), [version(2)])
                fill(disk, 6 * MIB)
                await until(address, "b", lambda w: w.disk == "full")
                async with floor_published(address, 3), asyncio.timeout(20):
                    while "1_id1.changelog" in await client.names(STORE):  # noqa: ASYNC110
                        await asyncio.sleep(0.1)
                assert (await client.prepare(STORE, version(3))).state == sidecar_pb2.PREPARE_STATE_READY


async def test_a_failing_disk_is_shown_and_gets_nothing_new_until_a_restart(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_module, "MAIN", BROKEN + MAIN)
    async with asyncio.timeout(120), manager(settings_of(tmp_path)) as address:
        cluster.address = address
        a, b, _ = await cluster.start("a", "b", "c")
        async with a.attach() as client, b.attach() as at_b:
            await at_b.commit(STORE, version(1), changelog_bytes(1), [])
            marker = b.settings.data_dir / MARKER
            marker.touch()
            with pytest.raises(grpc.aio.AioRpcError) as failed:
                await at_b.commit(STORE, version(2), b"2", lineage(2))
            assert failed.value.code() is grpc.StatusCode.DATA_LOSS
            marker.unlink()
            overview = await until(address, "b", lambda w: w.disk == "failing")
            message = next(w.disk_message for w in overview.workers if w.worker_id == "b")
            assert "Input/output error" in message
            for partition in range(4):
                store = StoreId("job", 1, partition, "default")
                await client.commit(store, version(1), b"1", [])
                assert members(await asyncio.to_thread(fetch_overview, address), store) == ["a", "c"]
            assert (await at_b.prepare(STORE, version(1))).state == sidecar_pb2.PREPARE_STATE_READY
        await b.end()
        await b.start()
        await until(address, "b", lambda w: w.disk == "ok" and w.state == "live")
        await group_of_any(address)


async def test_a_session_on_a_read_only_disk_is_refused_and_the_disk_is_failing(
    cluster: Cluster, tmp_path: Path
) -> None:
    async with asyncio.timeout(60), manager(settings_of(tmp_path)) as cluster.address:
        (a,) = await cluster.start("a")
        with read_only(a.settings.data_dir):
            with pytest.raises(grpc.RpcError, match="Read-only file system"):
                async with a.attach():
                    pass
            await until(cluster.address, "a", lambda w: w.disk == "failing" and "Read-only" in w.disk_message)


async def test_a_sidecar_that_cannot_keep_an_epoch_ends_rather_than_go_on_without(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    (a,) = await cluster.start("a")
    broken = """
from worker_runtime.storage.index.database import Database
put = Database.put
def broken(database, key, value):
    if key.startswith(b"e/"):
        raise Exception("IO error: Input/output error")
    put(database, key, value)
Database.put = broken
"""
    monkeypatch.setattr(cluster_module, "MAIN", broken + MAIN)
    b = cluster.make("b")
    await b.start()
    async with a.attach(commit_timeout_s=2.0) as client:
        with pytest.raises(grpc.aio.AioRpcError) as failed:
            await client.commit(STORE, version(1), changelog_bytes(1), [])
        assert failed.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    assert b.process is not None
    async with asyncio.timeout(30):
        assert await b.process.wait() != 0
    assert "epoch of job/0/3: the index cannot be written" in (b.settings.data_dir.parent / "log").read_text()


async def group_of_any(address: str) -> None:
    """Groups are whole again after the restart."""
    async with asyncio.timeout(20):
        while True:
            overview = await asyncio.to_thread(fetch_overview, address)
            if all(m.whole and m.state == "live" for g in overview.groups for m in g.members):
                return
            await asyncio.sleep(0.05)
