"""A real manager has archived batches restored by real sidecars, and says how it went: on S3 and in a folder."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from handover_manager.archive import events as ev
from handover_manager.archive.machine import ArchiveMachine
from rhino.cli.main import app
from rhino.client.handover_client import HandoverClient
from rhino.client.overview import fetch_overview
from rhino.client.verdict import Level, judge
from rhino_archive.bucket import Bucket
from rhino_archive.claims import claim
from rhino_archive.manifest import pack_name
from rhino_archive.reading import newest_manifest
from rhino_core.errors import UnavailableError
from rhino_core.ids import StoreVersion
from rhino_model.archives import Archive
from tests.nightly import few
from tests.rhino_archive.support.stores import BUCKET, SECRETS, s3, use
from tests.worker_runtime.archiving.scene import (
    STORE,
    Scene,
    drill_settings,
    join_versions,
    running,
    until_log,
)
from tests.worker_runtime.cluster import changelog_bytes
from tests.worker_runtime.support.with_manager import lineage, manager, version
from worker_runtime.verify import lz4_blocks

needs_lz4 = pytest.mark.skipif(not lz4_blocks.available(), reason="lz4 and xxhash are not installed (extra: verify)")


@pytest.fixture(params=few(["folder", "s3"]))
def archive(request: pytest.FixtureRequest, scene: Scene, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Of a manager in this process, and of sidecars that inherit its environment."""
    if request.param == "folder":
        yield str(scene.folder)
        return
    with s3() as address:
        use(address, monkeypatch)
        yield f"s3://{BUCKET}/drills"


async def until(address: str, condition: Callable[[Archive], bool]) -> Archive:
    def ask() -> Archive:
        with HandoverClient(address) as client:
            return client.archive()

    while not condition(found := await asyncio.to_thread(ask)):  # noqa: ASYNC110  another process
        await asyncio.sleep(0.05)
    return found


async def rhino(*arguments: str) -> tuple[int, str]:
    result = await asyncio.to_thread(CliRunner().invoke, app, arguments)
    return result.exit_code, f"{result.output}{result.exception if result.exit_code == 1 else ''}"


@needs_lz4
async def test_drills_pass_fail_with_the_object_and_pass_again(scene: Scene, archive: str, tmp_path: Path) -> None:
    bucket = Bucket(archive)
    async with (
        asyncio.timeout(150),
        manager(drill_settings(scene, tmp_path, archive, every_s=0.5)) as address,
    ):
        scene.cluster.address = address
        a, b = await scene.cluster.start("a", "b")
        async with running(address) as driver, a.attach(commit_timeout_s=60) as client:
            newest = await join_versions(client)
            await driver.report("job", 4, [newest])
            found = await until(address, lambda seen: seen.drills.passed >= 2)
            assert (found.drills.failed, found.drills.failures, found.error) == (0, (), "")
            assert found.drills.passed_age_s is not None
            await until_log(b, "restore drill")
            seen = await asyncio.to_thread(fetch_overview, address)
            assert judge(seen).level is Level.OK, judge(seen)

            manifest = await newest_manifest(bucket, "job")
            assert manifest is not None
            (pack,) = manifest.packs
            name = pack_name("job", pack)
            whole = await bucket.get(name)
            await bucket.put(name, bytes([*whole[:100], whole[100] ^ 1, *whole[101:]]))
            found = await until(address, lambda seen: seen.drills.failed > 0)
            (failure,) = found.drills.failures
            for part in ("batch 4", str(newest), manifest.name, name):
                assert part in failure
            code, said = await rhino("status", "--check", "--manager", address)
            assert (code, "1 restore drill failed: batch 4" in said) == (6, True), said
            code, said = await rhino("archive", "status", "--manager", address)
            assert f"restore drill failed: {failure}" in said

            await bucket.put(name, whole)
            await until(address, lambda seen: seen.drills.failures == ())
            await bucket.delete(manifest.name)
            found = await until(address, lambda seen: bool(seen.drills.failures))
            assert manifest.name in found.drills.failures[0]
    assert list((b.settings.data_dir / "tmp").iterdir()) == []
    assert SECRETS["AWS_SECRET_ACCESS_KEY"] not in (b.settings.data_dir.parent / "log").read_text()


async def test_what_could_not_be_tried_has_neither_passed_nor_failed(scene: Scene, tmp_path: Path) -> None:
    async with (
        asyncio.timeout(90),
        manager(drill_settings(scene, tmp_path, str(scene.folder), every_s=0.5)) as address,
    ):
        scene.cluster.address = address
        (a, b) = await scene.cluster.start("a", "b")
        async with running(address) as driver, a.attach(commit_timeout_s=30) as client:
            await client.commit(STORE, version(1), changelog_bytes(1), lineage(1))
            await driver.report("job", 0, [StoreVersion(STORE, version(1))])
            await until(address, lambda seen: seen.drills.unproven > 0)
            away = scene.folder.rename(scene.folder.with_name("away"))
            scene.folder.write_text("no folder")
            found = await until(address, lambda seen: seen.drills.not_run > 0)
            assert str(scene.folder) in found.drills.why
            assert (found.drills.passed, found.drills.failed, found.drills.failures) == (0, 0, ())
            scene.folder.unlink()
            away.rename(scene.folder)
            await until(address, lambda seen: not seen.drills.why)
            assert b.process is not None
            assert b.process.returncode is None


async def test_an_error_that_nobody_has_foreseen_stops_the_archive_and_nothing_else(
    scene: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(self: ArchiveMachine, event: ev.Event, *, now: float) -> list[ev.Effect]:
        if isinstance(event, ev.ManifestWritten):
            raise KeyError("planted")
        return list(whole(self, event, now=now))

    whole = ArchiveMachine.handle
    monkeypatch.setattr(ArchiveMachine, "handle", broken)
    async with (
        asyncio.timeout(90),
        manager(drill_settings(scene, tmp_path, str(scene.folder), every_s=0.0)) as address,
    ):
        scene.cluster.address = address
        (a, _) = await scene.cluster.start("a", "b")
        async with running(address) as driver, a.attach(commit_timeout_s=30) as client:
            for number in (1, 2, 3):
                await client.commit(STORE, version(number), changelog_bytes(number), lineage(number))
                await driver.report("job", number - 1, [StoreVersion(STORE, version(number))])
                await until(address, lambda seen: bool(seen.error))
            seen = await asyncio.to_thread(fetch_overview, address)
            (job,) = seen.jobs
            assert (job.batch_id, job.connected) == (2, True)
            assert judge(seen).level is Level.DEGRADED
            assert any("the archive has stopped: KeyError: 'planted'" in reason for reason in judge(seen).reasons)
            with HandoverClient(address) as direct, pytest.raises(UnavailableError, match="start the manager again"):
                await asyncio.to_thread(direct.archive_now)
    assert "the archive has stopped, start the manager again" in caplog.text


async def test_prune_asks_the_manager_for_its_archive_and_leaves_that_of_others(scene: Scene, tmp_path: Path) -> None:
    bucket = Bucket(str(scene.folder))
    async with (
        asyncio.timeout(90),
        manager(drill_settings(scene, tmp_path, str(scene.folder), every_s=0.0)) as address,
    ):
        scene.cluster.address = address
        (a, _) = await scene.cluster.start("a", "b")
        async with running(address) as driver, a.attach(commit_timeout_s=30) as client:
            for number in (1, 2, 3):
                await client.commit(STORE, version(number), changelog_bytes(number), lineage(number))
                await driver.report("job", number - 1, [StoreVersion(STORE, version(number))])
                await until(
                    address,
                    lambda seen, n=number: bool(seen.queries) and seen.queries[0].batch_id == n - 1,  # type: ignore[misc]
                )
        await claim(bucket, "another", "another-cluster")
        code, said = await rhino("archive", "prune", "--manager", address, "--json")
        assert (code, json.loads(said)["keep"]) == (0, "newest=3,hourly=24,daily=7")
        code, said = await rhino("archive", "prune", "--keep", "newest=1", "--yes", "--manager", address, "--json")
        (pruned,) = json.loads(said)["queries"].items()
        assert (code, pruned[0], len(pruned[1]["batches"]), pruned[1]["packs"]) == (0, "job", 2, [])
        code, said = await rhino("archive", "prune", "--job", "another", "--yes", "--manager", address)
        assert (code, "another-cluster: prune it there" in said) == (1, True), said
        newest = await newest_manifest(bucket, "job")
        assert newest is not None
        assert newest.batch_id == 2
