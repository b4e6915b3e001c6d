"""A query is started again with other settings, on real sidecars under the real manager."""

from __future__ import annotations

import asyncio
from pathlib import Path

from rhino_pb import sidecar_pb2
from tests.handover_manager.cluster import FakeDriver
from tests.worker_runtime.cluster import Cluster, changelog_bytes
from tests.worker_runtime.support.with_manager import STORE, group_of, lineage, manager, settings_of, version


async def started(address: str, factor: int, run_id: str, *, synced: bool = False) -> FakeDriver:
    driver = FakeDriver(address, factor=factor, synced=synced)
    await driver.hello()
    await driver.started(STORE.job, STORE.partition + 1, run_id=run_id)
    return driver


async def test_what_had_one_copy_gets_two_and_the_next_commits_wait_for_both(cluster: Cluster, tmp_path: Path) -> None:
    async with asyncio.timeout(60), manager(settings_of(tmp_path)) as address:
        cluster.address = address
        a, b = await cluster.start("a", "b")
        first = await started(address, 0, "run-1")
        async with a.attach(replicas=0) as client:
            assert (await client.commit(STORE, version(1), changelog_bytes(1), [])).copies == 1
            await group_of(address, "a")
        await first.stop()
        second = await started(address, 1, "run-2", synced=True)
        async with a.attach(replicas=0) as client:  # an executor of the former run: its word does not count
            group = await group_of(address, "a", "b")
            assert (group.replication_factor, group.min_copies, group.required_copies) == (1, 2, 2)
            assert group.durability == "synced"
            assert (await client.commit(STORE, version(2), changelog_bytes(2), lineage(2))).copies == 2
        await second.stop()
        await a.end()
        async with b.attach() as client:
            for number in (1, 2):
                found = await client.prepare(STORE, version(number))
                assert (found.state, found.source) == (sidecar_pb2.PREPARE_STATE_READY, sidecar_pb2.SOURCE_REPLICA)


async def test_what_had_two_copies_keeps_the_owners_and_commits_wait_for_it_alone(
    cluster: Cluster, tmp_path: Path
) -> None:
    async with asyncio.timeout(60), manager(settings_of(tmp_path)) as address:
        cluster.address = address
        a, _ = await cluster.start("a", "b")
        async with a.attach() as client:
            await client.commit(STORE, version(1), changelog_bytes(1), [])
            await group_of(address, "a", "b")
            driver = await started(address, 0, "run-2")
            group = await group_of(address, "a")
            assert (group.min_copies, group.required_copies) == (1, 1)
            assert (await client.commit(STORE, version(2), changelog_bytes(2), lineage(2))).copies == 1
            await driver.stop()
