"""Sidecars under a manager that has lost its journal: they say whom they know, and nothing is lost for a while."""

from __future__ import annotations

import signal

import pytest

from rhino_core.ids import StoreId, Version
from rhino_pb import sidecar_pb2
from tests.worker_runtime.cluster import Cluster

STORE = StoreId("job", 0, 1, "default")
NOWHERE = Version(3, "nowhere")
pytestmark = pytest.mark.timeout(60)


async def test_a_worker_names_whom_it_has_known_also_after_a_restart(cluster: Cluster) -> None:
    a, b = await cluster.start("a", "b")
    await cluster.manager.until(lambda: set(cluster.manager.workers) == {"a", "b"})
    async with a.attach(replicas=1) as client:  # it has heard of b: a group of two can be made
        await client.commit(STORE, Version(1, "x"), b"one", [])
    await b.end()
    await a.end(signal.SIGKILL)
    cluster.manager.workers.clear()  # the journal is gone
    cluster.manager.groups.clear()
    cluster.manager.named.clear()
    await a.start()
    await cluster.manager.until(lambda: "a" in cluster.manager.named)
    assert cluster.manager.named["a"] == {"a", "b"}


async def test_nothing_counts_as_lost_while_the_manager_may_not_know_every_worker(cluster: Cluster) -> None:
    cluster.manager.settling_s = 2.0
    (a,) = await cluster.start("a", prepare_timeout_s=0.1)
    async with a.attach(replicas=0) as client:
        reply = await client.prepare(STORE, NOWHERE)
        assert reply.state == sidecar_pb2.PREPARE_STATE_UNAVAILABLE
        assert "begun with an empty journal" in reply.message
        while reply.state == sidecar_pb2.PREPARE_STATE_UNAVAILABLE:
            reply = await client.prepare(STORE, NOWHERE)
        assert reply.state == sidecar_pb2.PREPARE_STATE_LOST
