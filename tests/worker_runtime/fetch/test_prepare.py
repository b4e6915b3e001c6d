"""The record of a Prepare while pushes arrive, on a real store."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from crc32c import crc32c

from rhino_core.ids import FileEntry, Source, StoreVersion
from tests.worker_runtime.cluster import zip_bytes
from tests.worker_runtime.scenario import STORE, version
from tests.worker_runtime.storage.disk import Disk
from worker_runtime.fetch.prepare import Preparer
from worker_runtime.protocol.closure import changelog_name, snapshot_name
from worker_runtime.protocol.preparing import PrepareState
from worker_runtime.statistics import Statistics

SST = "SSTs/000001-x.sst"


async def receive(disk: Disk, name: str, content: bytes, **fields: Any) -> None:
    entry = FileEntry(STORE, name, len(content), crc32c(content), written_by="other", **fields)
    await disk.store.received.receive_whole(entry, (content,))


async def test_a_snapshot_that_is_pushed_during_the_call_was_not_fetched_by_it(
    disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in (1, 2):
        lineage = tuple(version(before) for before in range(1, number))
        await receive(disk, changelog_name(version(number)), b"changelog", lineage=lineage)
    checked = disk.store.damaged

    async def damaged(*arguments: Any) -> list[str]:
        await receive(disk, SST, b"sst")
        await receive(disk, snapshot_name(version(2)), zip_bytes("000001-x.sst"), references=(SST,))
        return await checked(*arguments)

    monkeypatch.setattr(disk.store, "damaged", damaged)
    nobody = cast(Any, None)
    preparer = Preparer(cast(Any, SimpleNamespace(store=disk.store)), nobody, nobody, Statistics(), 1.0)
    record = await preparer.prepare("session", [StoreVersion(STORE, version(2))])
    assert (record.state, record.source, record.fetched_bytes) == (PrepareState.READY, Source.REPLICA, 0)
