"""A worker of a running job is drained in steps between real sidecars, then killed: nothing is fetched from afar."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections import Counter
from pathlib import Path

import pytest

from rhino import HandoverClient, Kind, Phase, Strategy
from rhino_core.ids import StoreId, StoreVersion, Version
from rhino_pb import sidecar_pb2
from tests.handover_manager.cluster import FakeDriver
from tests.worker_runtime.cluster import Client, Cluster, changelog_bytes
from tests.worker_runtime.support.with_manager import lineage, manager, settings_of, version

pytestmark = pytest.mark.timeout(120)
JOB, PARTITIONS = "job", 4
READ = {sidecar_pb2.SOURCE_LOCAL: "local", sidecar_pb2.SOURCE_REPLICA: "replica", sidecar_pb2.SOURCE_REMOTE: "remote"}


class Query:
    """Behaves like Spark: each batch runs every partition where the manager wants it, and then logs the batch."""

    def __init__(self, driver: FakeDriver, executors: dict[str, Client], handovers: HandoverClient) -> None:
        self._driver = driver
        self.executors = executors
        self._handovers = handovers
        self._last: dict[int, str] = {}  # who wrote each partition
        self.number = 0
        self.sources = Counter[str]()

    async def desired(self) -> dict[int, str]:
        (job,) = await asyncio.to_thread(self._handovers.jobs)
        return {int(node.virtual_node.split("/")[1]): node.desired_worker for node in job.virtual_nodes}

    async def batch(self) -> None:
        self.number += 1
        desired = await self.desired()
        await asyncio.gather(*[self._run(p, desired[p] or "a") for p in range(PARTITIONS)])
        versions = [StoreVersion(self._store(p), version(self.number)) for p in range(PARTITIONS)]
        await self._driver.report(JOB, self.number - 1, versions)

    async def _run(self, partition: int, worker: str) -> None:
        store, client = self._store(partition), self.executors[worker]
        if self.number > 1 and self._last[partition] != worker:
            await self._load(client, store, version(self.number - 1))
        content = changelog_bytes(self.number * 7 + partition, 20_000)
        await client.commit(store, version(self.number), content, lineage(self.number))
        self._last[partition] = worker

    async def reload(self) -> None:
        """As after a failed task: everybody loads again."""
        for partition, worker in (await self.desired()).items():
            await self._load(self.executors[worker], self._store(partition), version(self.number))

    async def _load(self, client: Client, store: StoreId, wanted: Version) -> None:
        reply = await client.prepare(store, wanted)
        assert reply.state == sidecar_pb2.PREPARE_STATE_READY
        self.sources[READ[reply.source]] += 1

    @staticmethod
    def _store(partition: int) -> StoreId:
        return StoreId(JOB, 0, partition, "default")


async def test_drained_in_steps_then_killed(cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("handover_manager.machine.SETTLE_S", 0.2)
    async with manager(settings_of(tmp_path)) as address, contextlib.AsyncExitStack() as stack:
        cluster.address = address
        await cluster.start("a", "b", "c")
        executors = {n: await stack.enter_async_context(s.attach()) for n, s in cluster.sidecars.items()}
        handovers = stack.enter_context(HandoverClient(address))
        driver = FakeDriver(address)
        stack.push_async_callback(driver.stop)
        await driver.hello()
        await driver.started(JOB, PARTITIONS, name="clicks")
        while not await asyncio.to_thread(handovers.jobs):  # noqa: ASYNC110  there is no notification
            await asyncio.sleep(0.05)
        query = Query(driver, executors, handovers)
        for _ in range(3):
            await query.batch()
        begun = await asyncio.to_thread(handovers.drain, "a", strategy=Strategy(Kind.BATCHED, 2))
        while not (await asyncio.to_thread(handovers.drain_status, "a")).safe_to_remove:
            await query.batch()
        ended = await asyncio.to_thread(handovers.wait, begun.handover_id)
        assert [step.phase for step in ended.steps] == [Phase.CONFIRMED] * 2
        assert "a" not in (await query.desired()).values()
        assert query.sources["replica"] >= PARTITIONS, "every virtual node was taken over"
        await cluster.sidecars["a"].end(signal.SIGKILL)
        await query.reload()
        for _ in range(3):
            await query.batch()
        await query.reload()
        assert query.sources["remote"] == 0
        assert set(query._last.values()) == {"b", "c"}
