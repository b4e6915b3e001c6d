"""Uploads of real sidecars into a folder."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from collections.abc import Callable

import grpc
import pytest

from rhino_archive.bucket import Bucket
from rhino_archive.manifest import part_of
from rhino_archive.packs import PACK_BYTES, RANDOM_BYTES
from rhino_archive.reading import read_part
from rhino_core.ids import StoreVersion
from rhino_core.rpc.convert import group_of
from tests.worker_runtime.archiving.scene import (
    LARGE,
    OTHER,
    READY,
    SST,
    STORE,
    TWIN,
    Scene,
    snapshot,
    until_log,
)
from tests.worker_runtime.cluster import changelog_bytes, zip_bytes
from tests.worker_runtime.support.scrub import flip_a_bit
from tests.worker_runtime.support.with_manager import version

SMALL = 3000  # bytes of a list of a few files


async def test_the_closure_goes_up_once_and_then_only_what_is_new(scene: Scene) -> None:
    (a,) = await scene.cluster.start("a")
    async with a.attach(replicas=0) as client:
        await snapshot(client)
        first = await scene.archive(a, 4)
        assert [group_of(group) for group in first.refused] == []
        part, packs = part_of(first.part), scene.packs()
        assert part.groups == (STORE.group,)
        assert set(part.packs) == packs.keys()
        assert sorted(packs.values())[-1] == PACK_BYTES
        closure = len(LARGE) + 2000  # the zip has a few bytes, too
        assert closure < sum(packs.values()) < closure + len(packs) * RANDOM_BYTES + SMALL
        assert first.uploaded_bytes == sum(packs.values())
        (archived,) = await read_part(Bucket(str(scene.folder)), "job", part)
        assert [file.entry.name for file in archived.files] == [SST, "3_id3.zip", "4_id4.changelog"]
        basis = (await scene.publish(4, first)).parts

        await client.commit(STORE, version(5), changelog_bytes(5), [version(3), version(4)])
        second = await scene.archive(a, 5, basis=basis)
        (new,) = scene.packs().keys() - packs.keys()
        assert 2000 < scene.packs()[new] < 2000 + SMALL
        assert set(part_of(second.part).packs) >= packs.keys() - {part.place.pack} | {new}


async def test_a_sidecar_that_was_restarted_reads_what_is_archived(scene: Scene) -> None:
    (a,) = await scene.cluster.start("a")
    async with a.attach(replicas=0, synced=True) as client:
        await snapshot(client)
    manifest = await scene.publish(4, await scene.archive(a, 4))
    before = scene.packs()
    await a.end(signal.SIGTERM)
    await a.start()
    await scene.publish(4, again := await scene.archive(a, 4, basis=manifest.parts))
    (new,) = scene.packs().keys() - before.keys()
    assert scene.packs()[new] < SMALL, "only another list"
    assert set(part_of(again.part).packs) == {*manifest.packs, new}


async def test_an_upload_that_no_manifest_names_counts_for_the_next_request(scene: Scene) -> None:
    (a,) = await scene.cluster.start("a")
    async with a.attach(replicas=0) as client:
        await snapshot(client)
        await scene.archive(a, 4)
        before = scene.packs()
        await client.commit(STORE, version(5), changelog_bytes(5), [version(3), version(4)])
        await scene.archive(a, 5)
    (new,) = scene.packs().keys() - before.keys()
    assert 2000 < scene.packs()[new] < 2000 + SMALL


async def test_everything_goes_up_again_if_the_list_of_the_newest_batch_is_damaged(scene: Scene) -> None:
    (a,) = await scene.cluster.start("a")
    async with a.attach(replicas=0, synced=True) as client:
        await client.commit(STORE, version(1), os.urandom(50_000), [])
    first = part_of((await scene.archive(a, 1)).part)
    manifest = await scene.publish(1, await scene.archive(a, 1))
    await a.end(signal.SIGTERM)
    await a.start()
    for name in {first.place.pack, *scene.packs()}:
        flip_a_bit(scene.pack(name))
    before = scene.packs()
    await scene.archive(a, 1, basis=manifest.parts)
    assert sum(scene.packs().values()) - sum(before.values()) > 50_000
    await until_log(a, "cannot be read: its files go up again")


async def test_the_same_bytes_go_up_once(scene: Scene) -> None:
    content = os.urandom(1_000_000)
    (a,) = await scene.cluster.start("a")
    async with a.attach(replicas=0) as client:
        await snapshot(client, content=content, twin=content)
        reply = await scene.archive(a, 4)
    assert sum(scene.packs().values()) < 1_100_000
    (archived,) = await read_part(Bucket(str(scene.folder)), "job", part_of(reply.part))
    places = {file.entry.name: file.extents for file in archived.files}
    assert places[SST] == places[TWIN]


async def test_a_group_that_is_not_here_is_refused_and_the_others_are_archived(scene: Scene) -> None:
    (a,) = await scene.cluster.start("a")
    async with a.attach(replicas=0) as client:
        await client.commit(STORE, version(1), changelog_bytes(1), [])
        reply = await scene.archive(a, 1, STORE, OTHER)
        assert [group_of(group) for group in reply.refused] == [OTHER.group]
        assert part_of(reply.part).groups == (STORE.group,)
        (only,) = await scene.ask(a, [StoreVersion(OTHER, version(1))])
        assert not only.HasField("part")


async def test_a_damaged_file_is_dropped_and_its_group_refused(scene: Scene) -> None:
    (a,) = await scene.cluster.start("a")
    async with a.attach(replicas=0) as client:
        for store in (STORE, OTHER):
            await client.commit(store, version(1), changelog_bytes(1), [])
        flip_a_bit(client.path(STORE, "1_id1.changelog"))
        reply = await scene.archive(a, 1, STORE, OTHER)
        assert [group_of(group) for group in reply.refused] == [STORE.group]
        assert part_of(reply.part).groups == (OTHER.group,)
        assert await client.names(STORE) == []


async def test_a_version_outlives_its_floor_while_it_goes_up_and_no_longer(scene: Scene) -> None:
    """The limit of bandwidth lets the first pack go, and then nothing for long. A second request waits."""
    (a,) = await scene.cluster.start("a", archive_bytes_per_s=1)
    async with a.attach(replicas=0) as client:
        await snapshot(client)
        running = asyncio.ensure_future(scene.archive(a, 4))
        await until(lambda: len(scene.packs()) == 1)
        second = asyncio.ensure_future(scene.archive(a, 4))
        await client.commit(STORE, version(5), zip_bytes(), [], end="zip")
        for number in (5, 6, 7):
            await client.commit(STORE, version(number), changelog_bytes(number), [version(n) for n in range(5, number)])
        scene.cluster.manager.set_floors(StoreVersion(STORE, version(6)))
        await until(lambda: not client.path(STORE, "1_id1.changelog").exists())
        for name in (SST, "3_id3.zip", "4_id4.changelog"):
            assert client.path(STORE, name).exists()
        running.cancel()
        second.cancel()
        await asyncio.gather(running, second, return_exceptions=True)
        scene.cluster.manager.set_floors(StoreVersion(STORE, version(7)))
        await until(lambda: not client.path(STORE, SST).exists())
        assert len(scene.packs()) == 1


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110  files
            await asyncio.sleep(0.02)


async def test_the_caller_hears_of_progress_all_the_time(scene: Scene) -> None:
    (a,) = await scene.cluster.start("a", archive_bytes_per_s=12 * 1024 * 1024)
    async with a.attach(replicas=0) as client:
        await snapshot(client)
        replies = await scene.ask(a, [StoreVersion(STORE, version(4))])
    assert len(replies) >= 2
    assert [reply.HasField("part") for reply in replies] == [False] * (len(replies) - 1) + [True]
    assert replies[0].uploaded_bytes == PACK_BYTES
    assert replies[0].left_bytes >= len(LARGE) - PACK_BYTES
    assert replies[-1].left_bytes == 0


async def test_a_sidecar_that_is_killed_at_any_point_begins_again(scene: Scene) -> None:
    (a,) = await scene.cluster.start("a")
    async with a.attach(replicas=0, synced=True) as client:
        await client.commit(STORE, version(1), changelog_bytes(1), [])
    for point in ("archive.pack", "archive.part"):
        for when in ("before", "after"):
            await a.arm(f"{point}.{when}=kill")
            with pytest.raises(grpc.RpcError):
                await scene.archive(a, 1)
            assert a.process is not None
            assert await a.process.wait() == -signal.SIGKILL
            await a.start()
    reply = await scene.archive(a, 1)
    await scene.publish(1, reply)
    await scene.lose_all()
    (b,) = await scene.cluster.start("b")
    async with b.attach(replicas=0) as client:
        assert (await client.prepare(STORE, version(1))).state == READY


async def test_errors_of_the_archive_have_their_codes(scene: Scene) -> None:
    (a,) = await scene.cluster.start("a")
    async with a.attach(replicas=0) as client:
        await client.commit(STORE, version(1), changelog_bytes(1), [])
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await scene.ask(a, [StoreVersion(STORE._replace(job="another"), version(1))])
        assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        shutil.rmtree(scene.folder)
        scene.folder.write_text("no folder")
        with pytest.raises(grpc.aio.AioRpcError) as broken:
            await scene.archive(a, 1)
        assert broken.value.code() is grpc.StatusCode.UNAVAILABLE
        assert str(scene.folder) in (broken.value.details() or "")
