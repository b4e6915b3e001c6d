"""Prepare with an archive, after the loss of all sidecars with their disks."""

from __future__ import annotations

import asyncio
import signal
from dataclasses import replace
from pathlib import Path

import grpc
import pytest

from rhino_archive.bucket import Bucket
from rhino_archive.manifest import Manifest
from rhino_archive.packs import PACK_BYTES
from rhino_archive.reading import read_part
from rhino_core.ids import Version
from rhino_pb import sidecar_pb2
from tests.worker_runtime.archiving.scene import LARGE, OTHER, READY, SST, STORE, TWIN, Scene, snapshot
from tests.worker_runtime.cluster import Client, Cluster, Process, changelog_bytes
from tests.worker_runtime.support.scrub import flip_a_bit
from tests.worker_runtime.support.with_manager import lineage, manager, settings_of, version

LOST, UNAVAILABLE = sidecar_pb2.PREPARE_STATE_LOST, sidecar_pb2.PREPARE_STATE_UNAVAILABLE


async def archived(scene: Scene, content: bytes = LARGE) -> Manifest:
    """Version 4 of two stores is archived by one sidecar. Then all are lost."""
    (a,) = await scene.cluster.start("a")
    async with a.attach(replicas=0) as client:
        await snapshot(client, content=content, twin=content)
        for number in range(1, 5):
            await client.commit(OTHER, version(number), changelog_bytes(number), lineage(number))
    manifest = await scene.publish(4, await scene.archive(a, 4, STORE, OTHER))
    await scene.lose_all()
    return manifest


async def test_a_new_cluster_goes_on_from_the_archive(scene: Scene) -> None:
    await archived(scene)
    (b,) = await scene.cluster.start("b")
    async with b.attach(replicas=0) as client:
        replies = await asyncio.gather(client.prepare(STORE, version(4)), client.prepare(OTHER, version(4)))
        for reply in replies:
            assert (reply.state, reply.source) == (READY, sidecar_pb2.SOURCE_REMOTE), reply.message
        assert replies[0].fetched_bytes > len(LARGE)
        for name in (SST, TWIN):
            assert client.path(STORE, name).read_bytes() == LARGE
        for number in range(1, 5):
            assert client.path(OTHER, f"{version(number)}.changelog").read_bytes() == changelog_bytes(number)
        assert {SST, "3_id3.zip", "4_id4.changelog"} <= set(await client.names(STORE))
        await client.commit(STORE, version(5), changelog_bytes(5), [version(3), version(4)])
        assert (await client.prepare(STORE, version(4))).source == sidecar_pb2.SOURCE_REPLICA


async def test_a_load_goes_on_where_it_was_broken(scene: Scene) -> None:
    """The second of three packs of a file is missing at first."""
    content = LARGE * 2
    manifest = await archived(scene, content)
    (of_store, _) = await read_part(Bucket(str(scene.folder)), "job", manifest.parts[0])
    first, second, _ = (extent.pack for extent in of_store.files[0].extents)
    scene.pack(second).rename(hidden := scene.folder / "hidden")
    (b,) = await scene.cluster.start("b")
    async with b.attach(replicas=0) as client:
        with pytest.raises(grpc.aio.AioRpcError) as broken:
            await client.prepare(STORE, version(4))
        assert broken.value.code() is grpc.StatusCode.DATA_LOSS
        assert f"has no job/packs/{second}" in (broken.value.details() or ""), "the missing pack is named"
        assert await client.names(STORE) == []
        hidden.rename(scene.pack(second))
        scene.pack(first).unlink()
        assert (await client.prepare(STORE, version(4))).state == READY
        assert client.path(STORE, SST).read_bytes() == content
        assert (await client.describe()).resumed_bytes > PACK_BYTES // 2


async def test_another_version_of_the_same_number_is_lost_and_the_message_says_where_to_go(scene: Scene) -> None:
    await archived(scene, b"x" * 1000)
    (b,) = await scene.cluster.start("b")
    async with b.attach(replicas=0) as client:
        for wanted in (Version(4, "another"), version(5), version(3)):
            reply = await client.prepare(STORE, wanted)
            assert reply.state == LOST
            assert reply.message.endswith(
                "the newest batch of query job in the archive is 3: `rhino rewind` goes to it"
            )
        reply = await client.prepare(STORE._replace(job="unknown"), version(1))
        assert reply.message.endswith("the archive has no batch of query unknown")


async def test_a_damaged_pack_is_named_and_its_file_does_not_count(scene: Scene) -> None:
    manifest = await archived(scene, b"x" * 1_000_000)
    (pack,) = manifest.packs
    flip_a_bit(scene.pack(pack))
    (b,) = await scene.cluster.start("b")
    async with b.attach(replicas=0) as client:
        with pytest.raises(grpc.aio.AioRpcError) as damaged:
            await client.prepare(STORE, version(4))
        assert damaged.value.code() is grpc.StatusCode.DATA_LOSS
        assert pack in (damaged.value.details() or "")
        assert await client.names(STORE) == []
        assert (await client.describe()).stored_bytes == 0


async def test_an_archive_that_cannot_be_asked_makes_nothing_lost(scene: Scene) -> None:
    await archived(scene, b"x" * 1000)
    aside = scene.folder.rename(scene.folder.with_name("aside"))
    scene.folder.write_text("no folder")
    (b,) = await scene.cluster.start("b")
    async with b.attach(replicas=0) as client:
        reply = await client.prepare(STORE, version(4))
        assert reply.state == UNAVAILABLE
        assert f"the archive cannot be asked: archive {scene.folder}" in reply.message
        scene.folder.unlink()
        aside.rename(scene.folder)
        assert (await client.prepare(STORE, version(4))).state == READY


async def test_a_worker_that_stays_away_is_replaced_by_the_archive(scene: Scene) -> None:
    a, b = await scene.cluster.start("a", "b")
    async with a.attach(replicas=0) as client:
        await client.commit(STORE, version(1), changelog_bytes(1), [])
    await scene.publish(1, await scene.archive(a, 1))
    await a.end(signal.SIGKILL)
    scene.cluster.manager.lose("a", absent=True)
    async with b.attach(replicas=0) as client:
        reply = await client.prepare(STORE, version(1))
        assert reply.state == UNAVAILABLE, "it may come back"
        assert "archive" not in reply.message
        await until_ready(client)
        assert client.path(STORE, "1_id1.changelog").read_bytes() == changelog_bytes(1)


async def until_ready(client: Client) -> None:
    async with asyncio.timeout(30):
        while (await client.prepare(STORE, version(1))).state != READY:  # noqa: ASYNC110  as executors do
            await asyncio.sleep(0.1)


async def test_without_an_archive_a_lost_version_is_lost(scene: Scene) -> None:
    await archived(scene, b"x" * 1000)
    scene.cluster.manager.archive = ""
    b: Process
    (b,) = await scene.cluster.start("b")
    async with b.attach(replicas=0) as client:
        reply = await client.prepare(STORE, version(4))
        assert (reply.state, "archive" in reply.message) == (LOST, False)


async def test_the_real_manager_names_the_archive(tmp_path: Path) -> None:
    """It has begun with an empty journal, so nothing is lost for a while; but the archive is asked."""
    (tmp_path / "archive").mkdir()
    settings = replace(settings_of(tmp_path), archive=str(tmp_path / "archive"))
    async with asyncio.timeout(180), manager(settings) as address, Cluster(tmp_path) as cluster:
        cluster.address = address
        (a,) = await cluster.start("a")
        async with a.attach(replicas=0) as client:
            while "the archive does not have it" not in (await client.prepare(STORE, version(1))).message:  # noqa: ASYNC110
                await asyncio.sleep(0.1)
