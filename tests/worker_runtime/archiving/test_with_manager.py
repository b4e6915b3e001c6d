"""A real manager archives what a driver logs, by real sidecars."""

from __future__ import annotations

import asyncio
import struct
from dataclasses import replace
from pathlib import Path

import pytest

from rhino.cli.archive import opens
from rhino.client.handover_client import HandoverClient
from rhino_archive.bucket import Bucket
from rhino_archive.claims import claim
from rhino_archive.manifest import Manifest, manifest_bytes
from rhino_archive.reading import manifest_names, newest_manifest
from rhino_archive.verifying import Verifier
from rhino_core.errors import PreconditionError
from rhino_core.ids import StoreVersion
from rhino_core.settings import ManagerSettings
from rhino_model.archives import ArchivedQuery
from tests.worker_runtime.archiving.scene import STORE, Scene, running
from tests.worker_runtime.cluster import changelog_bytes
from tests.worker_runtime.support.with_manager import lineage, manager, settings_of, version


def settings(scene: Scene, tmp_path: Path) -> ManagerSettings:
    (scene.folder / "job" / "writer").unlink()  # this manager is the first one
    return replace(settings_of(tmp_path, lease_s=60.0), archive=str(scene.folder), archive_every_s=0.2)


async def archived(address: str) -> ArchivedQuery | None:
    def ask() -> ArchivedQuery | None:
        with HandoverClient(address) as client:
            return next(iter(client.archive().queries), None)

    return await asyncio.to_thread(ask)


async def until_whole(address: str, batch: int) -> ArchivedQuery:
    while (found := await archived(address)) is None or not found.whole or found.batch_id != batch:  # noqa: ASYNC110
        await asyncio.sleep(0.05)
    return found


async def until_error(address: str, text: str) -> None:
    while (found := await archived(address)) is None or text not in found.error:  # noqa: ASYNC110
        await asyncio.sleep(0.05)


async def test_logged_batches_come_into_the_archive(scene: Scene, tmp_path: Path) -> None:
    async with asyncio.timeout(90), manager(settings(scene, tmp_path)) as address:
        scene.cluster.address = address
        a, b = await scene.cluster.start("a", "b")
        async with running(address) as driver, a.attach(commit_timeout_s=30) as client:
            for number in (1, 2, 3):
                await client.commit(STORE, version(number), changelog_bytes(number), lineage(number))
                await driver.report("job", number - 1, [StoreVersion(STORE, version(number))])
                found = await until_whole(address, number - 1)
                assert (found.name, found.logged_batch_id, found.age_s, found.error) == ("q", number - 1, 0.0, "")
        bucket = Bucket(str(scene.folder))
        newest = await newest_manifest(bucket, "job")
        assert newest is not None
        assert (newest.batch_id, newest.query, newest.location) == (2, "q", "file:/ckpt")
        assert newest.checkpoint == tuple((path, path.encode()) for path in ("metadata", "offsets/2", "commits/2"))
        assert "archived" not in (a.settings.data_dir.parent / "log").read_text(), "the owner"
        assert "archived" in (b.settings.data_dir.parent / "log").read_text()
        verifier = Verifier(bucket, "job", opens=opens)
        for name in await manifest_names(bucket, "job"):
            await verifier.verify(name)
        await verifier.verify_others()
        assert (verifier.found.batches, verifier.found.files, verifier.found.problems) == (3, 3, [])


async def test_another_cluster_is_told_and_may_be_followed(scene: Scene, tmp_path: Path) -> None:
    bucket, ours = Bucket(str(scene.folder)), settings(scene, tmp_path)
    await claim(bucket, "job", "former-cluster")
    async with asyncio.timeout(90), manager(ours) as address:
        scene.cluster.address = address
        (a, _) = await scene.cluster.start("a", "b")
        async with running(address) as driver, a.attach(commit_timeout_s=30) as client:
            await client.commit(STORE, version(1), changelog_bytes(1), [])
            await driver.report("job", 0, [StoreVersion(STORE, version(1))])
            await until_error(address, "archived by another cluster, former-cluster")
            assert await manifest_names(bucket, "job") == []
            with HandoverClient(address) as direct:
                cluster = (await asyncio.to_thread(direct.archive)).cluster
                await claim(bucket, "job", cluster, force=True)
                await asyncio.to_thread(direct.archive_now, "q")
            await until_whole(address, 0)


async def test_an_archive_that_is_gone_stops_nothing_and_is_named(scene: Scene, tmp_path: Path) -> None:
    async with asyncio.timeout(90), manager(settings(scene, tmp_path)) as address:
        scene.cluster.address = address
        (a, _) = await scene.cluster.start("a", "b")
        async with running(address) as driver, a.attach(commit_timeout_s=30) as client:
            await client.commit(STORE, version(1), changelog_bytes(1), [])
            await driver.report("job", 0, [StoreVersion(STORE, version(1))])
            await until_whole(address, 0)
            away = scene.folder.rename(scene.folder.with_name("away"))
            scene.folder.mkdir()  # as after the loss of a mount
            assert (await client.commit(STORE, version(2), changelog_bytes(2), lineage(2))).copies == 2
            await driver.report("job", 1, [StoreVersion(STORE, version(2))])
            await until_error(address, "is the archive mounted here?")
            assert list(scene.folder.rglob("*")) == []
            scene.folder.rmdir()
            away.rename(scene.folder)
            await until_whole(address, 1)


async def test_an_archive_of_a_later_version_is_left_alone(scene: Scene, tmp_path: Path) -> None:
    manifest = Manifest("job", 5, 1, 2, "cluster", "q", "/l", "d", ())
    data = manifest_bytes(manifest)
    bucket = Bucket(str(scene.folder))
    await bucket.put(manifest.name, data[:8] + struct.pack(">I", 2) + data[12:])
    async with asyncio.timeout(90), manager(settings(scene, tmp_path)) as address:
        scene.cluster.address = address
        (a, _) = await scene.cluster.start("a", "b")
        async with running(address) as driver, a.attach(commit_timeout_s=30) as client:
            await client.commit(STORE, version(1), changelog_bytes(1), [])
            await driver.report("job", 0, [StoreVersion(STORE, version(1))])
            await until_error(address, "has format 2, and this Rhino reads 1: install a later version")
    assert await manifest_names(bucket, "job") == [manifest.name]


async def test_without_an_archive(tmp_path: Path) -> None:
    async with manager(settings_of(tmp_path)) as address:
        with HandoverClient(address) as client:
            assert (await asyncio.to_thread(client.archive)).url == ""
            with pytest.raises(PreconditionError, match="start the manager with --archive"):
                await asyncio.to_thread(client.archive_now)
