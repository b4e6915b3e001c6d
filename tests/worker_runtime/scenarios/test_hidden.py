"""A snapshot that has lost a data file is not listed until the file is back."""

from __future__ import annotations

from pathlib import Path

from tests.worker_runtime.cluster import Cluster, changelog_bytes, zip_bytes
from tests.worker_runtime.scenario import STORE, version
from tests.worker_runtime.storage.rig import Disk, entry_of

SST, ZIP = "SSTs/000001-u.sst", "1_id1.zip"


async def snapshot(disk: Disk) -> None:
    await disk.store.uploads.take_over(STORE, SST, disk.inbox(b"data"))
    await disk.store.uploads.take_over(STORE, ZIP, disk.inbox(zip_bytes("000001-u.sst")))
    disk.store.files.set_visible(STORE, ZIP, visible=True)


def shown(disk: Disk) -> list[str]:
    return [record.entry.name for record in disk.store.files.visible(STORE)]


async def test_it_is_hidden_with_the_file_and_stays_so_over_a_restart(disk: Disk) -> None:
    await snapshot(disk)
    assert shown(disk) == [ZIP, SST]
    await disk.store.removal.remove(STORE, [SST])
    assert shown(disk) == []
    disk.reopen()
    assert shown(disk) == []
    incoming = await disk.store.received.begin(entry_of(b"data", SST), [b"data"])
    await disk.store.received.finish(entry_of(b"data", SST), incoming)
    disk.store.files.set_visible(STORE, ZIP, visible=True)
    assert shown(disk) == [ZIP, SST]


async def test_what_a_start_finds_damaged_hides_it(disk: Disk) -> None:
    await snapshot(disk)
    disk.path(SST).write_bytes(b"else")
    disk.reopen()
    assert shown(disk) == []


async def test_a_sidecar_shows_it_again_when_catch_up_has_brought_the_file(cluster: Cluster) -> None:
    a, b = await cluster.start("a", "b")
    content = changelog_bytes(7, 100_000)
    async with a.attach() as client, b.attach() as at_b:
        await client.add(STORE, SST, content)
        await client.commit(STORE, version(1), zip_bytes("000001-u.sst"), [], end="zip")
        await a.end()
        assert await at_b.names(STORE) == [ZIP, SST]
        path = Path(at_b.path(STORE, SST))
        path.chmod(0o644)
        path.write_bytes(content[:-1])
        await at_b.prepare(STORE, version(1))
        assert await at_b.names(STORE) == []
    await a.start()
    await cluster.manager.until(lambda: cluster.manager.reports["b", STORE.group].stored_files == 2)
    async with b.attach() as at_b:
        assert await at_b.names(STORE) == [ZIP, SST]
