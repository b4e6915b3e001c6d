"""All workers lose power at once: real sidecars, whose disks come back with what was synced and nothing else."""

from __future__ import annotations

import asyncio
import re
import signal
from pathlib import Path

import grpc
import pytest

from rhino_core.ids import StoreId
from rhino_pb import sidecar_pb2
from tests.nightly import few
from tests.worker_runtime import platter
from tests.worker_runtime.checks import Acked, check_folder
from tests.worker_runtime.cluster import Client, Cluster, Process, changelog_bytes, zip_bytes
from tests.worker_runtime.scenario import version

STORES = [StoreId("job", 0, partition, "default") for partition in range(6)]
SST = "000001-x.sst"


async def start(cluster: Cluster, *names: str) -> None:
    for process in (cluster.make(name) for name in names):
        folder = process.settings.data_dir.parent
        process.environment = {"TEST_PLATTER": str(folder / "platter"), "TEST_BOOT_ID": "first"}
    await asyncio.gather(*(cluster.sidecars[name].start() for name in names))


def lose_power(process: Process) -> None:
    """To be called for a dead process: what was not synced is gone, and the machine comes back with another boot id."""
    data = process.settings.data_dir
    platter.rebuild(data, data.parent / "platter")
    process.environment["TEST_BOOT_ID"] = "second"


class Writers:
    """Commit to many stores at once, until they are cut off."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.acked: Acked = {}
        self.commits = 0
        self.newest: dict[StoreId, int] = {}

    async def write(self, store: StoreId) -> None:
        """Changelogs from version 1, with a snapshot at version 2, by which alone the later ones open."""
        number, data = 0, f"data of {store}".encode()
        while True:
            number += 1
            lineage = [version(n) for n in range(1 if number < 3 else 2, number)]
            await self.client.commit(store, version(number), changelog_bytes(number), lineage)
            self._acked(store, f"{version(number)}.changelog", changelog_bytes(number))
            self.newest[store] = number
            if number == 2:
                snapshot = zip_bytes(SST)
                await self.client.add(store, f"SSTs/{SST}", data)
                await self.client.commit(store, version(2), snapshot, [], end="zip")
                self._acked(store, f"{version(2)}.zip", snapshot)
            if number == 3:
                self.acked[store, f"SSTs/{SST}"] = data

    def _acked(self, store: StoreId, name: str, content: bytes) -> None:
        self.acked[store, name] = content
        self.commits += 1

    async def until_power_is_lost(self, cluster: Cluster, commits: int) -> None:
        writing = [asyncio.create_task(self.write(store)) for store in STORES]
        async with asyncio.timeout(60):
            while self.commits < commits:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
        for process in cluster.sidecars.values():
            assert process.process is not None
            process.process.kill()
        outcomes = await asyncio.gather(*writing, return_exceptions=True)
        assert all(isinstance(outcome, grpc.aio.AioRpcError) for outcome in outcomes), outcomes
        for process in cluster.sidecars.values():
            await process.end()
            lose_power(process)


@pytest.mark.parametrize("commits", few([60, 20, 150]))
async def test_synced_commits_survive_on_every_member(cluster: Cluster, commits: int) -> None:
    await start(cluster, "a", "b")
    a, b = cluster.sidecars.values()
    async with a.attach(synced=True) as client:
        writers = Writers(client)
        await writers.until_power_is_lost(cluster, commits)
    for process in (a, b):
        await asyncio.to_thread(check_folder, process.settings.worker_id, process.settings.data_dir, writers.acked)
    await asyncio.gather(a.start(), b.start())
    for store in STORES:
        cluster.manager.set_group(store.group, "a", "b", required=2)
    async with a.attach(synced=True) as client:
        for store, newest in writers.newest.items():
            assert (await client.prepare(store, version(newest))).state == sidecar_pb2.PREPARE_STATE_READY
            first = 2 if (store, f"{version(2)}.zip") in writers.acked else 1  # the snapshot may have been cut off
            lineage = [version(n) for n in range(first, newest + 1)]
            number = newest + 1  # perhaps cut off before: the same bytes again are fine
            assert (await client.commit(store, version(number), changelog_bytes(number), lineage)).copies == 2


async def test_replicated_commits_do_not_which_shows_that_the_power_is_really_lost(cluster: Cluster) -> None:
    await start(cluster, "a", "b")
    async with cluster.sidecars["a"].attach() as client:
        writers = Writers(client)
        await writers.until_power_is_lost(cluster, 40)
    for process in cluster.sidecars.values():
        with pytest.raises(AssertionError, match="has lost"):
            await asyncio.to_thread(check_folder, process.settings.worker_id, process.settings.data_dir, writers.acked)


async def test_a_member_that_caught_up_counts_only_what_it_has_synced(cluster: Cluster) -> None:
    await start(cluster, "a", "b")
    store = STORES[0]
    acked: Acked = {}
    async with cluster.sidecars["a"].attach(synced=True) as client:
        for number in (1, 2, 3):
            lineage = [version(n) for n in range(1, number)]
            await client.commit(store, version(number), changelog_bytes(number), lineage)
            acked[store, f"{version(number)}.changelog"] = changelog_bytes(number)
        snapshot = zip_bytes(SST)
        await client.add(store, f"SSTs/{SST}", b"data")
        await client.commit(store, version(2), snapshot, [], end="zip")
        acked |= {(store, f"SSTs/{SST}"): b"data", (store, f"{version(2)}.zip"): snapshot}
        await start(cluster, "c")
        cluster.manager.set_group(store.group, "a", "b", "c", whole="a,b", required=2)
        await cluster.manager.until_whole(store.group)
        cluster.manager.set_group(store.group, "a", "c", required=2)
        reply = await client.commit(store, version(4), changelog_bytes(4), [version(2), version(3)])
        assert reply.copies == 2
        acked[store, f"{version(4)}.changelog"] = changelog_bytes(4)
    c = cluster.sidecars["c"]
    await c.end(signal.SIGKILL)
    lose_power(c)
    await asyncio.to_thread(check_folder, "c", c.settings.data_dir, acked)


@pytest.mark.parametrize("victim", ["a", "b"])
async def test_a_disk_that_cannot_sync_ends_its_sidecar_and_counts_for_nothing(cluster: Cluster, victim: str) -> None:
    await cluster.start("a", "b")
    process, store = cluster.sidecars[victim], STORES[0]
    await process.end()
    await process.start(failpoints="store.sync.before=error:2")
    async with cluster.sidecars["a"].attach(synced=True) as client:
        await client.commit(store, version(1), changelog_bytes(1), [])
    async with cluster.sidecars["a"].attach(synced=True, commit_timeout_s=1) as client:
        with pytest.raises(grpc.aio.AioRpcError) as failed:
            await client.commit(store, version(2), changelog_bytes(2), [version(1)])
    if victim == "a":
        assert "a sync has failed" in str(failed.value.details())
    async with asyncio.timeout(20):
        assert process.process is not None
        assert await process.process.wait() not in (0, -signal.SIGKILL)
    assert cluster.manager.left == [victim]
    await process.start(wait=False)
    assert await process.process.wait() != 0
    text = (process.settings.data_dir.parent / "log").read_text()
    assert re.search(r"IntegrityError: .*a sync has failed \(.*failpoint store.sync.before", text)
    assert "reboot (every byte is checked then), or start with an empty data_dir" in text


async def test_a_slow_sync_holds_up_neither_other_jobs_nor_the_files_behind_it(
    cluster: Cluster, tmp_path: Path
) -> None:
    gate = tmp_path / "closed"
    cluster.make("b").environment = {"TEST_SYNC_GATE": str(gate)}
    await asyncio.gather(cluster.start("a"), cluster.sidecars["b"].start())
    a, b = cluster.sidecars["a"], cluster.sidecars["b"]
    slow, free = StoreId("slow", 0, 0, "default"), StoreId("free", 0, 0, "default")
    async with a.attach(synced=True) as synced, a.attach() as replicated:
        await synced.commit(slow, version(1), changelog_bytes(1), [])
        await replicated.commit(free, version(1), changelog_bytes(1), [])
        reports = cluster.manager.reports
        await cluster.manager.until(lambda: ("b", free.group) in reports)  # now it knows what that job was promised
        gate.touch()
        lineages = [[version(n) for n in range(1, number)] for number in range(4)]
        waiting = [
            asyncio.create_task(synced.commit(slow, version(n), changelog_bytes(n), lineages[n])) for n in (2, 3)
        ]
        folder = b.settings.data_dir / "store" / "slow" / "0" / "0" / "default"
        async with asyncio.timeout(10):
            while not all((folder / f"{version(n)}.changelog").exists() for n in (2, 3)):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        reply = await replicated.commit(free, version(2), changelog_bytes(2), [version(1)])
        assert reply.copies == 2
        assert not any(task.done() for task in waiting)
        gate.unlink()
        assert [reply.copies for reply in await asyncio.gather(*waiting)] == [2, 2]
