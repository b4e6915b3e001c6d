"""Sidecars with a folder as archive. The test is the manager: it asks for uploads, and writes the manifests."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from rhino_archive.bucket import Bucket
from rhino_archive.manifest import Manifest, Part, manifest_bytes, part_of, part_to_pb
from rhino_core.ids import StoreId, StoreVersion, parse_name
from rhino_core.rpc.channel import aio_channel
from rhino_core.rpc.convert import store_version_to_pb
from rhino_core.settings import ManagerSettings
from rhino_pb import archive_pb2, peer_pb2_grpc, sidecar_pb2
from tests.handover_manager.cluster import FakeDriver
from tests.worker_runtime.cluster import Client, Cluster, Process, changelog_bytes, zip_bytes
from tests.worker_runtime.spark_files import spark_files
from tests.worker_runtime.support.with_manager import lineage, settings_of, version

STORE = StoreId("job", 0, 3, "default")
OTHER = STORE._replace(partition=4)
SST, TWIN = "SSTs/000001-u.sst", "SSTs/000002-u.sst"
LARGE = bytes(range(256)) * 4 * 40_000  # more than one pack
READY = sidecar_pb2.PREPARE_STATE_READY


@dataclass
class Scene:
    """`url`: of the archive. Empty: the folder."""

    cluster: Cluster
    folder: Path
    parts: list[Part] = field(default_factory=list)
    url: str = ""

    def __post_init__(self) -> None:
        self.url = self.url or str(self.folder)
        self.cluster.manager.archive = self.url

    def packs(self) -> dict[str, int]:
        """Sizes of the packs, by name."""
        return {path.name: path.stat().st_size for path in self.folder.glob("job/packs/*")}

    def pack(self, name: str) -> Path:
        return self.folder / "job" / "packs" / name

    async def archive(
        self, process: Process, number: int, *stores: StoreId, basis: Sequence[Part] = ()
    ) -> archive_pb2.ArchiveReply:
        """Version `number` of the stores. The last reply."""
        wanted = [StoreVersion(store, version(number)) for store in stores or (STORE,)]
        return (await self.ask(process, wanted, basis))[-1]

    async def ask(
        self, process: Process, versions: Sequence[StoreVersion], basis: Sequence[Part] = ()
    ) -> list[archive_pb2.ArchiveReply]:
        assert process.worker is not None
        request = archive_pb2.ArchiveRequest(
            archive=self.url,
            job="job",
            versions=map(store_version_to_pb, versions),
            basis=map(part_to_pb, basis),
        )
        async with aio_channel(process.worker.peer_address) as channel:
            return [reply async for reply in peer_pb2_grpc.PeerStub(channel).Archive(request, timeout=60)]

    async def publish(self, number: int, *replies: archive_pb2.ArchiveReply, digest: str = "d") -> Manifest:
        """Writes the manifest of the batch before version `number`."""
        parts = tuple(part_of(reply.part) for reply in replies)
        manifest = Manifest("job", number - 1, 1, 2, "cluster", "query", "/location", digest, parts)
        await Bucket(self.url).put(manifest.name, manifest_bytes(manifest))
        return manifest

    async def lose_all(self) -> None:
        """All sidecars end, and their disks are gone."""
        for name, process in self.cluster.sidecars.items():
            await process.end()
            shutil.rmtree(process.settings.data_dir)
            if name in self.cluster.manager.workers:
                self.cluster.manager.lose(name, absent=False)
        self.cluster.manager.groups.clear()


async def snapshot(client: Client, store: StoreId = STORE, content: bytes = LARGE, twin: bytes = b"") -> None:
    """Versions 1 to 4: a snapshot with a large file at version 3, and one changelog after it."""
    for number in (1, 2, 3):
        await client.commit(store, version(number), changelog_bytes(number), lineage(number))
    await client.add(store, SST, content)
    files = [SST]
    if twin:
        await client.add(store, TWIN, twin)
        files.append(TWIN)
    await client.commit(store, version(3), zip_bytes(*(name.removeprefix("SSTs/") for name in files)), [], end="zip")
    await client.commit(store, version(4), changelog_bytes(4), [version(3)])


async def join_versions(
    client: Client, *, changelogs: Sequence[int] = (1, 2, 3, 4, 5), snapshots: Sequence[int] = (1, 4)
) -> StoreVersion:
    """Versions of a join, as Spark wrote them, with these files. The newest version. The first snapshot is empty."""
    files = spark_files()
    for name, content in files.content.items():
        if name.startswith("SSTs/"):
            await client.add(STORE, name, content)
    for number in range(1, 6):
        for name in sorted(files.content):
            chosen = changelogs if name.endswith("changelog") else snapshots
            if name.startswith(f"{number}_") and number in chosen:
                written, end = parse_name(name).version, name.rpartition(".")[2]
                assert written is not None
                newest = StoreVersion(STORE, written)
                await client.commit(STORE, written, files.content[name], files.lineage.get(name, []), end=end)
    return newest


def drill_settings(scene: Scene, folder: Path, archive: str, every_s: float) -> ManagerSettings:
    """Of a real manager that is the first one with this archive."""
    (scene.folder / "job" / "writer").unlink(missing_ok=True)
    settings = replace(settings_of(folder, lease_s=60.0), archive=archive, archive_every_s=0.2)
    return replace(settings, archive_drill_every_s=every_s)


@asynccontextmanager
async def running(address: str) -> AsyncIterator[FakeDriver]:
    """A query with this driver."""
    driver = FakeDriver(address)
    try:
        await driver.hello()
        await driver.started("job", partitions=4, name="q", location="file:/ckpt")
        yield driver
    finally:
        await driver.stop()


async def until_log(process: Process, text: str) -> None:
    log = process.settings.data_dir.parent / "log"
    async with asyncio.timeout(30):
        while text not in log.read_text():  # noqa: ASYNC110  a file
            await asyncio.sleep(0.05)
