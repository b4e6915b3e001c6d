"""Restore drills of real sidecars: they find all damage, they blame nothing else, and leave nothing behind."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import grpc
import pytest

from rhino_archive.bucket import Bucket
from rhino_archive.manifest import ArchivedVersion, Part, digest_of, pack_name, part_of, part_to_pb
from rhino_archive.packs import Packer
from rhino_archive.reading import read_part
from rhino_archive.verifying import Verifier
from rhino_core.ids import FileKind, StoreVersion
from rhino_core.rpc.channel import aio_channel
from rhino_core.rpc.convert import store_version_to_pb
from rhino_pb import archive_pb2, peer_pb2_grpc
from tests.worker_runtime.archiving.scene import OTHER, STORE, Scene, join_versions, snapshot
from tests.worker_runtime.cluster import Process, changelog_bytes
from tests.worker_runtime.spark_files import KEYS_4, spark_files
from tests.worker_runtime.support.scrub import flip_a_bit
from tests.worker_runtime.support.with_manager import version
from worker_runtime.verify import lz4_blocks

needs_lz4 = pytest.mark.skipif(not lz4_blocks.available(), reason="lz4 and xxhash are not installed (extra: verify)")


async def drill(scene: Scene, process: Process, part: Part, *versions: StoreVersion) -> archive_pb2.DrillReply:
    assert process.worker is not None
    request = archive_pb2.DrillRequest(
        archive=str(scene.folder), part=part_to_pb(part), versions=map(store_version_to_pb, versions)
    )
    async with aio_channel(process.worker.peer_address) as channel:
        reply: archive_pb2.DrillReply = await peer_pb2_grpc.PeerStub(channel).Drill(request, timeout=60)
    return reply


async def refusal(scene: Scene, process: Process, part: Part, *versions: StoreVersion) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await drill(scene, process, part, *versions)
    return refused.value.code(), refused.value.details() or ""


def scratch(process: Process) -> list[Path]:
    return list((process.settings.data_dir / "tmp").iterdir())


async def until_clean(process: Process) -> None:
    async with asyncio.timeout(30):
        while scratch(process):  # noqa: ASYNC110  files
            await asyncio.sleep(0.02)


async def archived_join(scene: Scene, process: Process) -> tuple[Part, StoreVersion]:
    """The archive gets the first snapshot and changelogs. The worker then has a later snapshot, too."""
    async with process.attach(replicas=0) as client:
        newest = await join_versions(client, snapshots=(1,))
        (reply,) = (await scene.ask(process, [newest]))[-1:]
        files = spark_files()
        name = next(n for n in files.content if n.startswith("4_") and n.endswith("zip"))
        fourth = name.removesuffix(".zip").partition("_")[2]
        await client.commit(STORE, version(4)._replace(checkpoint_id=fourth), files.content[name], [], end="zip")
    return part_of(reply.part), newest


@needs_lz4
async def test_another_closure_with_the_same_content_passes(scene: Scene) -> None:
    (a,) = await scene.cluster.start("a")
    part, newest = await archived_join(scene, a)
    (archived,) = await read_part(Bucket(str(scene.folder)), "job", part)
    assert [name[0] for name in sorted(f.entry.name for f in archived.files)] == ["1", "2", "3", "4", "5"]
    reply = await drill(scene, a, part, newest)
    assert reply.unproven == ""
    assert reply.rows > KEYS_4 // 2
    assert reply.fetched_bytes == sum(file.entry.size_bytes for file in archived.files)
    await until_clean(a)


@needs_lz4
async def test_damage_is_found_and_its_object_named(scene: Scene) -> None:
    (a,) = await scene.cluster.start("a")
    part, newest = await archived_join(scene, a)
    (pack,) = part.packs
    path = scene.pack(pack)
    whole = path.read_bytes()

    async def found() -> str:
        code, details = await refusal(scene, a, part, newest)
        assert code is grpc.StatusCode.DATA_LOSS, details
        return details

    flip_a_bit(path)
    assert f"wrong bytes in job/packs/{pack}" in await found()
    path.write_bytes(whole[: part.place.offset - 1] + bytes([whole[part.place.offset - 1] ^ 1]))
    assert pack in await found(), "the list is gone"
    path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    assert f"job/packs/{pack}: the list of files" in await found()
    path.unlink()
    assert f"has no job/packs/{pack}" in await found()
    path.write_bytes(whole)
    await drill(scene, a, part, newest)
    await until_clean(a)


async def listed_otherwise(scene: Scene, part: Part, versions: Sequence[ArchivedVersion]) -> Part:
    """Another list, in another pack."""
    closed = Packer().close(versions, part.groups)
    for pack in closed.packs:
        await Bucket(str(scene.folder)).put(pack_name("job", pack.name), pack.data)
    return closed.part


@needs_lz4
async def test_a_closure_that_opens_with_other_content_fails_though_all_checksums_are_right(scene: Scene) -> None:
    (a,) = await scene.cluster.start("a")
    part, newest = await archived_join(scene, a)
    (whole,) = await read_part(Bucket(str(scene.folder)), "job", part)
    for lost, said in (("3_", "not the same content"), ("", "from no pack, has 0 keys")):
        files = tuple(file for file in whole.files if not file.entry.name.startswith(lost))
        other = await listed_otherwise(scene, part, [ArchivedVersion(newest, files)])
        code, details = await refusal(scene, a, other, newest)
        assert (code, said in details) == (grpc.StatusCode.DATA_LOSS, True), details
        assert f"{newest}, restored from" in details
    other = await listed_otherwise(scene, part, [])
    assert f"its list does not have the files of {newest}" in (await refusal(scene, a, other, newest))[1]
    lacking = await listed_otherwise(scene, part, [ArchivedVersion(newest, whole.files[:-1])])
    manifest = await scene.publish(5, archive_pb2.ArchiveReply(part=part_to_pb(lacking)), digest=digest_of((newest,)))
    verifier = Verifier(Bucket(str(scene.folder)), "job")
    await verifier.verify(manifest.name)
    assert verifier.found.problems == [], "only a drill finds it"
    await until_clean(a)


@needs_lz4
async def test_a_snapshot_that_rocksdb_cannot_open_fails(scene: Scene) -> None:
    (a,) = await scene.cluster.start("a")
    async with a.attach(replicas=0) as client:
        newest = await join_versions(client, changelogs=(5,), snapshots=(4,))
        part = part_of((await scene.ask(a, [newest]))[-1].part)
    (whole,) = await read_part(Bucket(str(scene.folder)), "job", part)
    assert (await drill(scene, a, part, newest)).unproven == ""
    files = tuple(file for file in whole.files if file.entry.kind is not FileKind.SST)
    code, details = await refusal(
        scene, a, await listed_otherwise(scene, part, [ArchivedVersion(newest, files)]), newest
    )
    assert (code, "cannot be opened" in details) == (grpc.StatusCode.DATA_LOSS, True), details


async def test_what_is_not_here_is_no_failure(scene: Scene) -> None:
    a, b = await scene.cluster.start("a", "b")
    async with a.attach(replicas=0) as client:
        await client.commit(STORE, version(1), changelog_bytes(1), [])
        part = part_of((await scene.archive(a, 1)).part)
    wanted = StoreVersion(STORE, version(1))
    code, details = await refusal(scene, b, part, wanted)
    assert (code, f"{wanted} is not here" in details) == (grpc.StatusCode.NOT_FOUND, True)
    code, _ = await refusal(scene, a, part, StoreVersion(OTHER, version(1)))
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    away = scene.folder.rename(scene.folder.with_name("away"))
    scene.folder.write_text("no folder")
    assert (await refusal(scene, a, part, wanted))[0] is grpc.StatusCode.UNAVAILABLE
    scene.folder.unlink()
    away.rename(scene.folder)
    await until_clean(a)
    await until_clean(b)


async def test_content_that_only_spark_can_read_is_unproven_but_its_bytes_are_compared(scene: Scene) -> None:
    (a,) = await scene.cluster.start("a")
    async with a.attach(replicas=0) as client:
        await client.commit(STORE, version(1), changelog_bytes(1), [])
        part = part_of((await scene.archive(a, 1)).part)
    wanted = StoreVersion(STORE, version(1))
    reply = await drill(scene, a, part, wanted)
    assert "1_id1.changelog: it is not LZ4" in reply.unproven
    flip_a_bit(scene.pack(part.place.pack))
    assert (await refusal(scene, a, part, wanted))[0] is grpc.StatusCode.DATA_LOSS


async def test_a_copy_here_that_cannot_be_opened_is_not_blamed_on_the_archive(scene: Scene) -> None:
    (a,) = await scene.cluster.start("a")
    async with a.attach(replicas=0) as client:
        await snapshot(client, content=os.urandom(1000))  # no file of RocksDB
        part = part_of((await scene.archive(a, 4)).part)
    code, details = await refusal(scene, a, part, StoreVersion(STORE, version(4)))
    assert code is grpc.StatusCode.UNAVAILABLE
    assert "the copy here cannot be compared" in details
    await until_clean(a)


async def test_a_slow_drill_leaves_nothing_behind_when_its_caller_goes_or_it_is_killed(scene: Scene) -> None:
    """The limit of bandwidth lets the first pack come, and then nothing for long."""
    (a,) = await scene.cluster.start("a")
    (b,) = await scene.cluster.start("b", archive_bytes_per_s=1)
    async with a.attach(replicas=1, synced=True) as client:
        await snapshot(client)
        part = part_of((await scene.archive(a, 4)).part)
    wanted = StoreVersion(STORE, version(4))

    async def fetching() -> asyncio.Task[archive_pb2.DrillReply]:
        task = asyncio.create_task(drill(scene, b, part, wanted))
        async with asyncio.timeout(30):
            while not any((folder / "there").exists() for folder in scratch(b)):  # noqa: ASYNC110  files
                await asyncio.sleep(0.02)
        return task

    task = await fetching()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await until_clean(b)
    task = await fetching()
    await b.end(signal.SIGKILL)
    await asyncio.gather(task, return_exceptions=True)
    assert scratch(b), "killed in the middle"
    await b.start()
    assert scratch(b) == []
    shutil.rmtree(scene.folder / "job" / "packs")
    object.__setattr__(b, "settings", replace(b.settings, archive_bytes_per_s=0))
    await b.end(signal.SIGTERM)
    await b.start()
    assert (await refusal(scene, b, part, wanted))[0] is grpc.StatusCode.DATA_LOSS
