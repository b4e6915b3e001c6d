"""A store that goes on for long without a snapshot: its index stays small, and knows every lineage."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import pytest
from crc32c import crc32c
from rocksdict import Options, Rdict

from rhino_core.errors import IntegrityError
from rhino_core.ids import Epoch, FileEntry, Version
from rhino_core.lineage import LONG, Lineage
from rhino_core.rpc.channel import aio_channel
from rhino_core.rpc.convert import file_to_pb, group_to_pb
from rhino_core.rpc.inventory import files_of, files_to_pb
from rhino_pb import peer_pb2, peer_pb2_grpc, sidecar_pb2
from tests.worker_runtime.cluster import Cluster, changelog_bytes
from tests.worker_runtime.scenario import GROUP, STORE, version
from worker_runtime.protocol.versions.closure import changelog_name, snapshot_name
from worker_runtime.storage.store import Store

BATCHES = 800


def changelog(number: int, since: int = 1, branch: str = "id") -> FileEntry:
    lineage = tuple(version(n) for n in range(since, number))
    return FileEntry(STORE, changelog_name(Version(number, f"{branch}{number}")), 1, crc32c(b"x"), lineage=lineage)


async def receive(store: Store, *entries: FileEntry) -> None:
    for entry in entries:
        await store.received.receive_whole(entry, [b"x"])


async def filled(folder: Path, batches: int) -> Store:
    store = Store.open("me", folder, 0)
    await receive(store, *(changelog(number) for number in range(1, batches + 1)))
    return store


def keys(folder: Path) -> list[bytes]:
    index = Rdict(str(folder / "index"), options=Options(raw_mode=True))
    try:
        return [bytes(key) for key in index.keys()]  # noqa: SIM118  its iterator takes text only
    finally:
        index.close()


async def test_the_index_grows_by_as_much_with_each_batch_and_opens_again(tmp_path: Path) -> None:
    store = await filled(tmp_path, BATCHES)
    before = {entry.name: entry for entry in store.files.entries()}
    store.close()
    index_bytes = sum(path.stat().st_size for path in (tmp_path / "index").iterdir())
    assert index_bytes < 1_000_000  # 6 MB with a list in each record
    store = Store.open("me", tmp_path, 0)
    after = {entry.name: entry for entry in store.files.entries()}
    assert after == before
    branches = {id(entry.lineage._branch) for entry in after.values() if isinstance(entry.lineage, Lineage)}
    assert len(branches) == 1
    assert store.catalogue.store(STORE).newest_held() == version(BATCHES)
    messages = files_to_pb(store.retention.inventory(GROUP))
    assert sum(message.ByteSize() for message in messages) < 300_000
    assert {entry.name: entry for entry in files_of(messages)} == before
    await receive(store, changelog(BATCHES + 1))
    store.close()
    store = Store.open("me", tmp_path, 0)
    record = store.files.record(STORE, changelog_name(version(BATCHES + 1)))
    assert record is not None
    assert record.entry.lineage == tuple(version(n) for n in range(1, BATCHES + 1))
    store.close()


async def test_pointers_go_with_the_changelogs_that_need_them(tmp_path: Path) -> None:
    last, base = 3 * LONG, 2 * LONG
    store = await filled(tmp_path, base)
    await receive(store, FileEntry(STORE, snapshot_name(version(base)), 1, crc32c(b"x")))
    await receive(store, *(changelog(number, base) for number in range(base + 1, last + LONG)))
    store.retention.raise_floor(STORE, version(last))
    assert await store.removal.collect(STORE, ())
    await store.removal.remove(STORE, [changelog_name(version(base))])  # its own lineage goes back to version 1
    kept = {entry.name: entry for entry in store.files.entries()}
    store.close()
    pointed = {int(key.split(b"\0")[1].split(b"_")[0]) for key in keys(tmp_path) if key.startswith(b"n/")}
    assert pointed == set(range(base + 1, last + LONG - 1))
    store = Store.open("me", tmp_path, 0)
    assert {entry.name: entry for entry in store.files.entries()} == kept
    await store.removal.remove(STORE, list(kept))
    store.close()
    assert [key for key in keys(tmp_path) if key.startswith(b"n/")] == []
    await receive(again := Store.open("me", tmp_path, 0), *(changelog(number) for number in range(1, last)))
    again.removal.drop_job(STORE.job, Epoch(9, 9), [GROUP])
    again.close()
    assert [key for key in keys(tmp_path) if key[:2] in (b"n/", b"f/")] == []


async def test_a_lost_changelog_takes_no_lineage_with_it(tmp_path: Path) -> None:
    store = await filled(tmp_path, 2 * LONG)
    await store.removal.remove(STORE, [changelog_name(version(n)) for n in (1, LONG, 2 * LONG - 1)])
    kept = {entry.name: entry for entry in store.files.entries()}
    store.close()
    store = Store.open("me", tmp_path, 0)
    assert {entry.name: entry for entry in store.files.entries()} == kept
    store.close()


async def test_branches_open_again(tmp_path: Path) -> None:
    store = await filled(tmp_path, 2 * LONG)
    other = tuple(version(n) for n in range(1, LONG)) + tuple(Version(n, f"b{n}") for n in range(LONG, 2 * LONG))
    crossed = (*other[:-1], version(2 * LONG - 1))  # the same version behind another one
    entries = [
        FileEntry(STORE, f"{2 * LONG}_{name}.changelog", 1, crc32c(b"x"), lineage=lineage)
        for name, lineage in (("other", other), ("crossed", crossed))
    ]
    await receive(store, *entries)
    before = {entry.name: entry for entry in store.files.entries()}
    store.close()
    store = Store.open("me", tmp_path, 0)
    assert {entry.name: entry for entry in store.files.entries()} == before
    store.close()


async def test_an_index_without_a_pointer_is_damaged(tmp_path: Path) -> None:
    (await filled(tmp_path, 2 * LONG)).close()
    index = Rdict(str(tmp_path / "index"), options=Options(raw_mode=True))
    del index[f"n/{STORE}\0{version(LONG)}".encode()]
    index.close()
    with pytest.raises(IntegrityError, match=rf"does not know what was before version {version(LONG)}"):
        Store.open("me", tmp_path, 0)


async def test_a_new_member_catches_up_and_another_worker_prepares(tmp_path: Path) -> None:
    batches = 200
    async with asyncio.timeout(120), Cluster(tmp_path) as cluster:
        a, b, c = await cluster.start("a", "b", "c")
        cluster.manager.set_group(GROUP, "a", whole="a", required=1)
        async with a.attach(replicas=0) as client:
            for number in range(1, batches + 1):
                lineage = [version(n) for n in range(1, number)]
                await client.commit(STORE, version(number), changelog_bytes(number, 50), lineage)
        cluster.manager.set_group(GROUP, "a", "b", whole="a", required=1)
        await cluster.manager.until_whole(GROUP)
        await b.end(signal.SIGTERM)
        await b.start()
        for process, source in ((b, sidecar_pb2.SOURCE_REPLICA), (c, sidecar_pb2.SOURCE_REMOTE)):
            async with process.attach() as client:
                reply = await client.prepare(STORE, version(batches))
                assert (reply.state, reply.source) == (sidecar_pb2.PREPARE_STATE_READY, source)
        assert c.worker is not None
        async with aio_channel(c.worker.peer_address) as channel:
            stub = peer_pb2_grpc.PeerStub(channel)
            shared = await stub.Inventory(peer_pb2.InventoryRequest(group=group_to_pb(GROUP)), timeout=10)
        whole = [file_to_pb(entry) for entry in files_of(shared.files)]
        assert shared.ByteSize() * 10 < sum(message.ByteSize() for message in whole), "sent once"
        for process in (b, c):
            await process.end(signal.SIGTERM)
            store = Store.open(process.settings.worker_id, process.settings.data_dir, 0)
            record = store.files.record(STORE, changelog_name(version(batches)))
            assert record is not None
            assert record.entry.lineage == tuple(version(n) for n in range(1, batches))
            store.close()
