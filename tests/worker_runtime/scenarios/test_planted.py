"""A file that somebody has planted on a worker before that became a member: catch-up compares bytes, not names."""

from __future__ import annotations

import asyncio

import pytest

from rhino_core.ids import StoreId, Version
from rhino_pb import sidecar_pb2
from tests.worker_runtime.cluster import Cluster, changelog_bytes

STORE = StoreId("job", 0, 3, "default")
FIRST = Version(1, "id1")


@pytest.mark.timeout(120)
async def test_a_new_member_replaces_what_was_planted_there(cluster: Cluster) -> None:
    a, b = await cluster.start("a", "b")
    manager, name, genuine = cluster.manager, f"{FIRST}.changelog", changelog_bytes(1)
    for process, content in ((b, b"forged"), (a, genuine)):
        manager.set_group(STORE.group, process.settings.worker_id)
        async with process.attach(replicas=0) as client:
            await client.commit(STORE, FIRST, content, [])
    stored = b.settings.data_dir / "store" / str(STORE) / name
    assert stored.read_bytes() == b"forged"
    manager.set_group(STORE.group, "a", "b", whole="a")
    await manager.until_whole(STORE.group)
    assert stored.read_bytes() == genuine
    async with b.attach() as client, asyncio.timeout(20):
        assert (await client.prepare(STORE, FIRST)).state == sidecar_pb2.PREPARE_STATE_READY
    log = (b.settings.data_dir.parent / "log").read_text()
    assert "a file here has other bytes than at a member of its group" in log
