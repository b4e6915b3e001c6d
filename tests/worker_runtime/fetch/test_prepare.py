"""The record of a Prepare while pushes arrive, on a real store."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest
from crc32c import crc32c

from rhino_core.errors import UnavailableError
from rhino_core.ids import NO_EPOCH, FileEntry, GroupId, Source, StoreVersion, Worker
from tests.worker_runtime.cluster import zip_bytes
from tests.worker_runtime.scenario import STORE, version, worker
from tests.worker_runtime.storage.rig import Disk
from worker_runtime.fetch.peers import Reached
from worker_runtime.fetch.prepare import Preparer
from worker_runtime.precedence import Turns
from worker_runtime.protocol.copies.preparing import PrepareState
from worker_runtime.protocol.copies.pulling import Found, Inventory
from worker_runtime.protocol.versions.closure import changelog_name, snapshot_name
from worker_runtime.statistics import PrepareRecord, Statistics

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


class SlowPeers:
    """Each attempt to fetch takes a while, gets so far, and breaks. The last one brings the file."""

    def __init__(self, disk: Disk, offsets: list[int]) -> None:
        self._disk = disk
        self._offsets = offsets
        self.turns = Turns(lambda: False)

    async def held(self, worker: Worker, versions: list[StoreVersion]) -> list[bool]:
        return [True] * len(versions)

    async def inventory(self, worker: Worker, group: GroupId) -> Inventory:
        entry = FileEntry(STORE, changelog_name(version(1)), 1000, crc32c(b"x" * 1000), written_by="other")
        return Inventory(worker, (entry,), NO_EPOCH)

    async def pull(self, found: Found, reached: Reached) -> int:
        await asyncio.sleep(0.1)
        if not self._offsets:
            await receive(self._disk, found.entry.name, b"x" * 1000)
            return 1000
        reached(found.entry, self._offsets.pop(0))
        raise UnavailableError("broken")


async def anybody(group: GroupId) -> None:
    """Any worker may have files."""


async def prepared(disk: Disk, offsets: list[int]) -> PrepareRecord:
    me, other = worker("a"), worker("b")
    manager = SimpleNamespace(live_workers=lambda: [me, other], may_hold=anybody)
    replication = cast(Any, SimpleNamespace(store=disk.store, me=me, drop_damaged=None, group=lambda of: None))
    peers = cast(Any, SlowPeers(disk, offsets))
    preparer = Preparer(replication, peers, cast(Any, manager), Statistics(), 0.5)
    return await preparer.prepare("session", [StoreVersion(STORE, version(1))])


async def test_a_fetch_may_take_longer_than_the_limit_as_long_as_bytes_come(disk: Disk) -> None:
    record = await prepared(disk, [100, 200, 300, 400, 500, 600])
    assert record.state is PrepareState.READY
    assert record.duration_ms > 1000


async def test_bytes_that_come_again_and_again_are_no_progress(disk: Disk) -> None:
    record = await prepared(disk, [600] * 1000)
    assert record.state is PrepareState.UNAVAILABLE
    assert record.message == "nothing has come for 0.5 s; 600 bytes have come, 400 are left"
