"""A manager process that dies at each step of its journal, under real sidecars that go on committing."""

from __future__ import annotations

import asyncio
import shutil
import signal
from pathlib import Path

import grpc
import pytest
from rocksdict import Rdict

from rhino.client.overview import fetch_overview
from rhino_core import failpoints
from rhino_core.folder import MARK
from rhino_core.ids import Epoch, StoreId, Version
from tests.nightly import few
from tests.worker_runtime.cluster import Cluster, Process, changelog_bytes
from tests.worker_runtime.support.manager_process import ManagerProcess

POINTS = [
    name
    for name in failpoints.NAMES
    if name.startswith(("journal.generation.", "journal.write.", "journal.raise_generation."))
]


async def commit(writer: Process, store: StoreId) -> None:
    """Until it has succeeded with two copies."""
    async with asyncio.timeout(40):
        while True:
            try:
                async with writer.attach() as client:
                    reply = await client.commit(store, Version(1, "id1"), changelog_bytes(1), [])
                    if reply.copies == 2:
                        return
            except grpc.aio.AioRpcError:
                await asyncio.sleep(0.1)


async def epochs(address: str) -> dict[str, Epoch]:
    overview = await asyncio.to_thread(fetch_overview, address)
    return {str(group.group): group.epoch for group in overview.groups}


@pytest.mark.parametrize("point", few(POINTS, 2))
async def test_a_manager_that_dies_at_its_journal_goes_on(point: str, tmp_path: Path) -> None:
    first, second = StoreId("job", 0, 0, "default"), StoreId("job", 0, 1, "default")
    manager = ManagerProcess(tmp_path)
    try:
        async with Cluster(tmp_path) as cluster:
            cluster.address = manager.address
            await manager.start()
            await manager.ready()
            a, b = await cluster.start("a", "b")
            await commit(a, first)
            before = await epochs(manager.address)
            await manager.kill()
            if "raise_generation" in point:  # an old journal is restored: the sidecars have seen more than it knows
                mark = (manager.data_dir / MARK).read_bytes()
                shutil.rmtree(manager.data_dir)
                old = Rdict(str(manager.data_dir))
                old["generation"] = 1
                old.close()
                (manager.data_dir / MARK).write_bytes(mark)
            # The first batch is that of the second group: workers that have not changed are not journalled again.
            await manager.start(f"{point}=kill")
            committing = asyncio.create_task(commit(a, second))
            assert await manager.ended() == -signal.SIGKILL
            await manager.start()
            await manager.ready()
            await committing
            after = await epochs(manager.address)
            assert all(after.get(group, epoch) >= epoch for group, epoch in before.items())
            for process in (a, b):
                for store in (first, second):
                    path = process.settings.data_dir / "store" / "job" / "0" / str(store.partition) / "default"
                    assert (path / "1_id1.changelog").read_bytes() == changelog_bytes(1)
    finally:
        await manager.kill()
