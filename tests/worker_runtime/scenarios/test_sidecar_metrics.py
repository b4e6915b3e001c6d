"""The metrics of real sidecars follow what they do."""

from __future__ import annotations

import asyncio
import urllib.request

import pytest
from prometheus_client.parser import text_string_to_metric_families

from rhino_core.ids import StoreId, Version
from tests.rhino_core.support.metrics import free_port
from tests.worker_runtime.cluster import Client, Cluster, Process, changelog_bytes

STORE = StoreId("job", 0, 3, "default")
FIRST = Version(1, "one")
pytestmark = pytest.mark.timeout(60)


async def samples(process: Process) -> dict[str, float]:
    url = f"http://127.0.0.1:{process.settings.metrics_port}/metrics"
    text = await asyncio.to_thread(lambda: urllib.request.urlopen(url, timeout=10).read().decode())
    families = text_string_to_metric_families(text)
    return {".".join([s.name, *s.labels.values()]): s.value for family in families for s in family.samples}


async def refused_commit(client: Client) -> None:
    with pytest.raises(Exception, match="needs"):
        await client.commit(STORE, Version(2, "two"), changelog_bytes(2), [FIRST])


async def test_commits_prepares_bytes_and_scrub_errors_are_counted(cluster: Cluster) -> None:
    processes = [cluster.make(name, metrics_port=free_port()) for name in "ab"]
    await asyncio.gather(*(process.start() for process in processes))
    a, b = processes
    size = len(changelog_bytes(1))
    async with a.attach(replicas=1) as client:
        await client.commit(STORE, FIRST, changelog_bytes(1), [])
        await client.prepare(STORE, FIRST)
        await client.prepare(STORE, Version(9, "nowhere"))
    found = await samples(a)
    assert found["rhino_commit_duration_seconds_count.changelog"] == 1
    assert found["rhino_commit_duration_seconds_count.snapshot"] == 0
    assert 0 < found["rhino_commit_duration_seconds_sum.changelog"] < 10
    assert found["rhino_prepare_duration_seconds_count.local"] == 1
    assert found["rhino_prepares_not_ready_total.lost"] == 1
    assert found["rhino_replicated_bytes_total.sent"] in (size, 2 * size)  # catch-up may have asked for it as well
    assert found["rhino_replication_lag_bytes"] == 0
    assert found["rhino_stored_bytes"] == size
    assert (await samples(b))["rhino_replicated_bytes_total.received"] in (size, 2 * size)
    await b.end()
    async with a.attach(replicas=1, commit_timeout_s=5.0) as client, asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(refused_commit(client))
        async with asyncio.timeout(30):
            while (await samples(a))["rhino_replication_lag_bytes"] != len(changelog_bytes(2)):
                assert not waiting.done(), "no lag was seen while a commit waited"
    assert (await samples(a))["rhino_replication_lag_bytes"] == 0, "what was given up is owed to nobody"
