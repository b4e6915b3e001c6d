"""Three real sidecars: real gRPC, real files, real RocksDB, real kill -9; only the manager is a fake."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rhino.ids import StoreId, Version
from rhino_pb import sidecar_pb2
from tests.worker_runtime.cluster import Cluster, changelog_bytes
from worker_runtime.core.closure import changelog_name

STORE = StoreId("job", 0, 3, "default")
READY, UNAVAILABLE, LOST = (
    sidecar_pb2.PREPARE_STATE_READY,
    sidecar_pb2.PREPARE_STATE_UNAVAILABLE,
    sidecar_pb2.PREPARE_STATE_LOST,
)


def version(number: int) -> Version:
    return Version(number, f"id{number}")


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    async with Cluster(tmp_path) as made:
        yield made


async def write(client: object, count: int, *, start: int = 1) -> None:
    """Changelogs of versions start..count."""
    for number in range(start, count + 1):
        lineage = [version(n) for n in range(1, number)]
        await client.commit(STORE, version(number), changelog_bytes(number), lineage)  # type: ignore[attr-defined]


async def test_commit_goes_through_the_chain_and_is_visible_everywhere(cluster: Cluster) -> None:
    a, b, c = await cluster.start("a", "b", "c")
    async with a.attach(replicas=2) as client, b.attach() as at_b, c.attach() as at_c:
        reply = await client.commit(STORE, version(1), changelog_bytes(1), [])
        assert reply.copies >= 2
        assert await client.names(STORE) == [changelog_name(version(1))]
        await cluster.manager.until(lambda: bool(cluster.manager.reports.get(("c", STORE.group))))
        for other in (at_b, at_c):
            prepared = await other.prepare(STORE, version(1))
            assert (prepared.state, prepared.source) == (READY, sidecar_pb2.SOURCE_REPLICA)
            content = other.path(STORE, changelog_name(version(1))).read_bytes()
            assert content == changelog_bytes(1)
        assert (await client.prepare(STORE, version(1))).source == sidecar_pb2.SOURCE_LOCAL
        assert (await client.prepare(STORE, Version(0, ""))).source == sidecar_pb2.SOURCE_EMPTY
