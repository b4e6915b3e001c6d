"""An application with executors on some workers only, on real sidecars under the real manager."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from replication_manager.protocol.groups import logged
from rhino.client.overview import fetch_overview
from rhino_core.ids import StoreId, StoreVersion
from rhino_pb import sidecar_pb2
from tests.handover_manager.cluster import FakeDriver, eventually, until
from tests.worker_runtime.cluster import Client, Cluster, Process, changelog_bytes
from tests.worker_runtime.support.with_manager import lineage, manager, settings_of, version

JOB = "job"
FIRST, SECOND = StoreId(JOB, 0, 0, "default"), StoreId(JOB, 1, 0, "default")  # of one task


async def start(cluster: Cluster, names: str) -> list[Process]:
    """Each sidecar on a host of its own."""
    made = [cluster.make(name) for name in names]
    for process in made:
        process.settings = replace(process.settings, host=f"host-{process.settings.worker_id}")
    await asyncio.gather(*(process.start() for process in made))
    return made


async def chain(address: str, store: StoreId) -> list[str]:
    overview = await asyncio.to_thread(fetch_overview, address)
    return [m.worker_id for g in overview.groups if g.group == store.group for m in g.members]


async def write(client: Client, number: int) -> list[StoreVersion]:
    """Loads the version before and commits this one, as the task of both operators does."""
    for store in (FIRST, SECOND):
        ready = await client.prepare(store, version(number - 1))
        assert ready.state == sidecar_pb2.PREPARE_STATE_READY
        await client.commit(store, version(number), changelog_bytes(number), lineage(number))
    return [StoreVersion(store, version(number)) for store in (FIRST, SECOND)]


async def test_operators_of_one_task_with_different_owners_come_together_where_it_runs(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logged, "GUEST_STREAK", 3)
    async with asyncio.timeout(120), manager(settings_of(tmp_path)) as cluster.address:
        a, _, _, d = await start(cluster, "abcd")
        driver = FakeDriver(cluster.address)
        await driver.hello()
        await driver.started(JOB, 1, operators=(0, 1))
        async with a.attach() as client, d.attach() as other:
            await client.commit(FIRST, version(1), changelog_bytes(1), [])
            await other.commit(SECOND, version(1), changelog_bytes(1), [])
            (_, secondary) = await chain(cluster.address, SECOND)
            assert secondary in "bc"
            number = 1
            while await chain(cluster.address, SECOND) != ["a", "d"]:
                number += 1
                await driver.report(JOB, number - 1, await write(client, number))
            assert number > logged.GUEST_STREAK
            assert (await chain(cluster.address, FIRST))[0] == "a"
            await until(lambda: driver.hosts(JOB, 0)[:1] == ["host-a"], "it is desired where it runs")
            await driver.stop()
        async with d.attach() as other:
            ready = await other.prepare(SECOND, version(number))
            assert ready.source == sidecar_pb2.SOURCE_REPLICA, "the former owner goes on as a secondary"


async def test_copies_are_placed_where_executors_are(cluster: Cluster, tmp_path: Path) -> None:
    async with asyncio.timeout(120), manager(settings_of(tmp_path)) as cluster.address:
        a, *_ = await start(cluster, "abcd")
        driver = FakeDriver(cluster.address)
        await driver.hello()
        await driver.executor("0", "host-a")
        await driver.executor("1", "pod-17", worker_id="d")
        await driver.started(JOB, 4)

        async def known() -> bool:
            return bool((await asyncio.to_thread(fetch_overview, cluster.address)).jobs)

        await eventually(known, "the query is known")
        async with a.attach() as client:
            stores = [StoreId(JOB, 0, partition, "default") for partition in range(4)]
            for store in stores:
                await client.commit(store, version(1), changelog_bytes(1), [])
            assert [await chain(cluster.address, store) for store in stores] == [["a", "d"]] * 4
        await driver.stop()
