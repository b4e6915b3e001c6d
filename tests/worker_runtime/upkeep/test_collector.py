"""When the collector looks at a store: after its floor has risen, and now and then, whatever other stores do."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from crc32c import crc32c

from rhino_core.ids import FileEntry, StoreId, StoreVersion
from tests.worker_runtime.scenario import version
from tests.worker_runtime.support.collector import around
from worker_runtime.protocol.versions.closure import changelog_name, snapshot_name
from worker_runtime.storage.store import Store
from worker_runtime.upkeep import collector
from worker_runtime.upkeep.collector import Collector

RUNS, STOPPED = StoreId("runs", 0, 0, "default"), StoreId("stopped", 0, 0, "default")


async def receive(store: Store, of: StoreId, name: str, references: tuple[str, ...] = ()) -> None:
    await store.received.receive_whole(FileEntry(of, name, 1, crc32c(b"x"), references=references), [b"x"])


async def test_a_store_that_no_floor_asks_for_is_swept_while_another_query_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collector, "SWEEP_S", 0.3)
    monkeypatch.setattr(collector, "DELAY_S", 0.01)
    store = Store.open("me", tmp_path, 0)
    await receive(store, STOPPED, snapshot_name(version(5)))
    await receive(store, RUNS, snapshot_name(version(1)))
    made = Collector(around(store))
    work = asyncio.create_task(made.run())
    abandoned = tmp_path / "inbox" / ("0" * 32) / "file"
    abandoned.parent.mkdir()
    abandoned.touch()
    monkeypatch.setattr("worker_runtime.storage.arriving.inbox.ABANDONED_S", 0.5)
    try:
        made.floors([StoreVersion(STOPPED, version(5))])
        number = 1
        async with asyncio.timeout(30):
            while made._due:  # noqa: ASYNC110  the floor has been seen to
                await asyncio.sleep(0.01)
            await receive(store, STOPPED, changelog_name(version(2)))  # late
            while store.files.record(STOPPED, changelog_name(version(2))) is not None or abandoned.exists():
                number += 1
                await receive(store, RUNS, snapshot_name(version(number)))
                made.floors([StoreVersion(RUNS, version(number))])
                await asyncio.sleep(0.05)
        assert store.files.record(STOPPED, snapshot_name(version(5))) is not None
    finally:
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)
        store.close()
