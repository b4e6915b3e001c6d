"""`synced` jobs: what counts is on disk before, rounds are shared, and a failed sync is final."""

from __future__ import annotations

import asyncio
import errno
import os
import stat
import threading
from collections.abc import Coroutine, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from crc32c import crc32c

from rhino_core.errors import IntegrityError, UnavailableError
from rhino_core.ids import Durability, Epoch, FileEntry, Lane
from tests.worker_runtime.scenario import STORE, version
from worker_runtime.storage.disk import files
from worker_runtime.storage.disk.syncer import Syncer
from worker_runtime.storage.keeping import recovery
from worker_runtime.storage.store import Store

NAMES = [f"{version(number)}.changelog" for number in range(1, 9)]


class Syncs:
    """Counts what is synced; can hold it up, or let it fail."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.paths: list[str] = []
        self.open = threading.Event()
        self.open.set()
        self.error: OSError | None = None
        self._real = os.fsync
        monkeypatch.setattr(os, "fsync", self._fsync)

    def _fsync(self, fd: int) -> None:
        self.paths.append(os.readlink(f"/proc/self/fd/{fd}"))
        assert self.open.wait(20)
        if self.error is not None and stat.S_ISREG(os.fstat(fd).st_mode):
            raise self.error
        self._real(fd)


@pytest.fixture
def syncs(monkeypatch: pytest.MonkeyPatch) -> Syncs:
    return Syncs(monkeypatch)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = Store.open("me", tmp_path, 0)
    opened.durability.learn(STORE.job, Durability.SYNCED)
    yield opened
    opened.close()


def inbox(store: Store, name: str, content: bytes = b"bytes") -> Path:
    path = store.layout.inbox / name
    path.write_bytes(content)
    return path


def received(name: str, content: bytes) -> FileEntry:
    return FileEntry(STORE, name, len(content), crc32c(content), written_by="a")


async def until(condition: object) -> None:
    assert callable(condition)
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.005)


async def test_nothing_counts_before_file_folders_and_index_are_synced(
    store: Store, syncs: Syncs, monkeypatch: pytest.MonkeyPatch
) -> None:
    index_synced = threading.Event()
    monkeypatch.setattr(store.syncer, "_sync_index", index_synced.set)
    syncs.open.clear()
    taking = asyncio.create_task(store.uploads.take_over(STORE, NAMES[0], inbox(store, "new")))
    receiving = asyncio.create_task(store.received.receive_whole(received("SSTs/000001-u.sst", b"sst"), [b"sst"]))
    folder = store.files.path(received(NAMES[0], b"")).parent
    wanted = {str(folder / NAMES[0]), str(folder / "SSTs/000001-u.sst"), *map(str, [folder, *folder.parents[:5]])}
    await until(lambda: wanted <= set(syncs.paths))
    assert not taking.done()
    assert not receiving.done()
    assert store.files.record(STORE, NAMES[0]) is None
    assert list(store.catalogue.store(STORE).entries()) == []
    syncs.open.set()
    await asyncio.gather(taking, receiving)
    assert index_synced.is_set()
    assert {e.name for e in store.catalogue.store(STORE).entries()} == {NAMES[0], "SSTs/000001-u.sst"}


async def test_files_of_a_job_that_is_forgotten_while_they_wait_for_a_sync_are_no_failure_of_the_disk(
    store: Store, syncs: Syncs
) -> None:
    """The sidecar would end, and start again after a reboot only."""
    syncs.open.clear()
    first = asyncio.create_task(store.uploads.take_over(STORE, NAMES[0], inbox(store, "new")))
    await until(lambda: syncs.paths)
    path = store.files.path(received(NAMES[1], b""))
    second = asyncio.create_task(store.uploads.take_over(STORE, NAMES[1], inbox(store, "newer")))
    await until(path.exists)
    store.removal.drop_job(STORE.job, Epoch(2, 1), [STORE.group])
    assert not path.exists()
    syncs.open.set()
    await asyncio.gather(first, second)
    assert store.syncer.failure is None


def linked_into(store: Store, of: str) -> Path:
    """In the inbox: a further name of a stored file, as an executor hands it over."""
    path = store.layout.inbox / "link"
    os.link(store.files.path(received(of, b"")), path)
    return path


@pytest.mark.parametrize("way", ["taken over", "received linked", "received as a link"])
async def test_a_linked_file_counts_no_sooner_than_any_other(
    store: Store, syncs: Syncs, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """Its bytes may be on disk already; its name is not, nor the record in the index."""
    first, again = "SSTs/000001-u.sst", "SSTs/000001-v.sst"
    known = await store.received.receive_whole(received(first, b"sst"), [b"sst"])
    entry = replace(known.entry, name=again, same_as=first)
    index_synced = threading.Event()
    monkeypatch.setattr(store.syncer, "_sync_index", index_synced.set)
    syncs.paths.clear()
    syncs.open.clear()
    if way == "taken over":
        work: Coroutine[None, None, object] = store.uploads.take_over(STORE, again, linked_into(store, first))
    elif way == "received linked":
        work = store.received.receive_linked(entry)
    else:
        incoming = store.incoming.link(entry, [known])
        assert incoming is not None
        work = store.received.finish(entry, incoming)
    keeping = asyncio.create_task(work)
    path = store.files.path(entry)
    await until(lambda: path.exists() and syncs.paths)
    assert not keeping.done()
    assert store.files.record(STORE, again) is None
    assert [e.name for e in store.catalogue.store(STORE).entries()] == [first]
    syncs.open.set()
    await keeping
    assert index_synced.is_set()
    assert {str(path), *map(str, path.parents[:6])} <= set(syncs.paths)
    assert store.files.record(STORE, again) is not None


async def test_a_linked_file_that_is_read_while_its_job_becomes_synced_is_synced_with_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was to count from the page cache, and is not in the catalogue yet: its twin has gone, so it is read."""
    store = Store.open("me", tmp_path, 0)
    store.durability.learn(STORE.job, Durability.REPLICATED)
    first, again = "SSTs/000001-u.sst", "SSTs/000001-v.sst"
    known = await store.received.receive_whole(received(first, b"sst"), [b"sst"])
    entry = replace(known.entry, name=again, same_as=first)
    incoming = store.incoming.link(entry, [known])
    assert incoming is not None
    reading, read, there = threading.Event(), threading.Event(), []
    verify = files.verify

    def slow(*arguments: Any, **more: Any) -> bool:
        reading.set()
        assert read.wait(20)
        return verify(*arguments, **more)

    def sync_everything(syncer: Syncer) -> None:
        there.append(store.files.path(entry).exists() and again in {file.entry.name for file in store.index.files()})

    monkeypatch.setattr(files, "verify", slow)
    monkeypatch.setattr(store.threads, "run_small", lambda lane, work, size_bytes: asyncio.to_thread(work))
    monkeypatch.setattr(Syncer, "sync_everything", sync_everything)
    await store.removal.remove(STORE, [first])
    keeping = asyncio.create_task(store.received.finish(entry, incoming))
    await until(reading.is_set)
    store.durability.learn(STORE.job, Durability.SYNCED)
    assert there == [True], "file and record were there to be synced"
    assert store.files.record(STORE, again) is None
    read.set()
    await keeping
    store.close()


async def test_who_waits_shares_the_next_round_and_lanes_do_not_wait_for_each_other(store: Store, syncs: Syncs) -> None:
    syncs.open.clear()
    first = asyncio.create_task(store.received.receive_whole(received("SSTs/000001-u.sst", b"sst"), [b"sst"]))
    await until(lambda: any(path.endswith(".sst") for path in syncs.paths))
    taking = [
        asyncio.create_task(store.uploads.take_over(STORE, name, inbox(store, f"new-{name}", name.encode())))
        for name in NAMES[:1]
    ]
    await until(lambda: any(path.endswith(".changelog") for path in syncs.paths))  # while the data file is at it
    taking += [
        asyncio.create_task(store.uploads.take_over(STORE, name, inbox(store, f"new-{name}", name.encode())))
        for name in NAMES[1:]
    ]
    await until(lambda: sum(store.files.path(received(name, b"")).exists() for name in NAMES) == len(NAMES))
    await until(lambda: sum(map(len, store.syncer._waiting.values())) == len(NAMES) - 1)
    syncs.open.set()
    await asyncio.gather(first, *taking)
    folder = str(store.files.path(received(NAMES[0], b"")).parent)
    assert syncs.paths.count(folder) == 3  # data file's round, first changelog's, and one for the seven others
    assert len([path for path in syncs.paths if path.endswith(".changelog")]) == len(NAMES)


async def test_replicated_jobs_are_not_synced_and_unknown_ones_are(tmp_path: Path, syncs: Syncs) -> None:
    store = Store.open("me", tmp_path, 0)
    await store.uploads.take_over(STORE, NAMES[0], inbox(store, "1"))
    assert syncs.paths
    store.durability.learn(STORE.job, Durability.REPLICATED)
    syncs.paths.clear()
    await store.uploads.take_over(STORE, NAMES[1], inbox(store, "2"))
    store.close()
    store = Store.open("me", tmp_path, 0)
    await store.uploads.take_over(STORE, NAMES[2], inbox(store, "3"))
    assert not syncs.paths
    store.close()


async def test_a_start_syncs_what_a_killed_process_may_have_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    everything: list[Path] = []
    monkeypatch.setattr(Syncer, "sync_everything", lambda syncer: everything.append(syncer._layout.root))
    store = Store.open("me", tmp_path, 0)
    store.durability.learn(STORE.job, Durability.REPLICATED)
    await store.uploads.take_over(STORE, NAMES[0], inbox(store, "1"))
    store.close()
    store = Store.open("me", tmp_path, 0)
    assert everything == []
    store.durability.learn(STORE.job, Durability.SYNCED)  # a manager without memory: what is here must catch up
    assert everything == [tmp_path]
    store.durability.learn(STORE.job, Durability.REPLICATED)
    await store.uploads.take_over(STORE, NAMES[1], inbox(store, "2"))
    store.close()
    Store.open("me", tmp_path, 0).close()
    assert everything == [tmp_path] * 2
    monkeypatch.setattr(recovery, "boot_id", lambda: "after a loss of power")  # what can be read then is on disk
    Store.open("me", tmp_path, 0).close()
    assert everything == [tmp_path] * 2


async def test_everything_can_be_synced(store: Store) -> None:
    await store.uploads.take_over(STORE, NAMES[0], inbox(store, "1"))
    store.syncer.sync_everything()
    assert store.syncer.failure is None


async def test_a_failed_sync_is_told_to_all_and_never_repeated(
    tmp_path: Path, syncs: Syncs, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store.open("me", tmp_path, 0)
    await store.uploads.take_over(STORE, NAMES[0], inbox(store, "1"))
    syncs.error = OSError(errno.EIO, "Input/output error")
    attempts = [store.uploads.take_over(STORE, name, inbox(store, name)) for name in NAMES[1:4]]
    outcomes = await asyncio.gather(*attempts, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [UnavailableError] * 3
    assert store.syncer.failed.is_set()
    syncs.error = None  # the kernel has dropped the pages and would say yes now
    before = len(syncs.paths)
    with pytest.raises(UnavailableError, match="a sync has failed"):
        await store.uploads.take_over(STORE, NAMES[1], inbox(store, "again"))
    with pytest.raises(UnavailableError, match="a sync has failed"):
        await store.received.receive_whole(received(NAMES[5], b"x"), [b"x"])
    assert len(syncs.paths) == before
    assert {entry.name for entry in store.catalogue.store(STORE).entries()} == {NAMES[0]}
    store.close()
    with pytest.raises(IntegrityError, match="reboot"):
        Store.open("me", tmp_path, 0)
    monkeypatch.setattr(recovery, "boot_id", lambda: "rebooted")
    again = Store.open("me", tmp_path, 0)
    assert again.files.record(STORE, NAMES[0]) is not None
    again.durability.learn(STORE.job, Durability.SYNCED)
    await again.uploads.take_over(STORE, NAMES[7], inbox(again, "1"))
    again.close()


async def test_an_index_that_cannot_be_synced_is_a_failed_sync(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise OSError(errno.EIO, "the index cannot be synced")

    monkeypatch.setattr(store.syncer, "_sync_index", fail)
    with pytest.raises(UnavailableError, match="the index cannot be synced"):
        await store.syncer.sync(store.layout.inbox, Lane.BULK)
