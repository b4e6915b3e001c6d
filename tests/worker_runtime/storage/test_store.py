"""The store on a real disk with a real index: take-over, checks, crash points, recovery."""

from __future__ import annotations

import asyncio
import io
import json
import os
import shutil
import threading
import time
import zipfile
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from crc32c import crc32c
from rocksdict import Options, Rdict

from rhino_core.errors import (
    AlreadyThereError,
    IntegrityError,
    InvalidRequestError,
    LocalProtocolError,
    NoSpaceError,
    PreconditionError,
    UnknownError,
)
from rhino_core.ids import Durability, Epoch, GroupId, StoreId, StoreVersion, Version, Worker
from tests.simulation.sizes import sizes
from tests.worker_runtime.cluster import zip_bytes
from tests.worker_runtime.scenario import GROUP, STORE, version
from tests.worker_runtime.storage.rig import NAME, SST, Disk, entry_of
from worker_runtime.manager_link.directory import KnownWorkers
from worker_runtime.protocol.versions.closure import changelog_name, snapshot_name
from worker_runtime.storage.disk import files
from worker_runtime.storage.disk.incoming import Incoming
from worker_runtime.storage.index.newest import NewestVersions
from worker_runtime.storage.keeping import recovery
from worker_runtime.storage.keeping.scrub_round import Damage, ScrubRound
from worker_runtime.storage.store import Store


async def test_take_over_consumes_the_inbox_and_hides_versions(disk: Disk) -> None:
    source = disk.inbox(b"one")
    record = await disk.store.uploads.take_over(STORE, NAME, source)
    assert not source.exists()
    assert disk.path(NAME).read_bytes() == b"one"
    assert (record.entry.crc32c, record.entry.written_by, record.visible) == (crc32c(b"one"), "me", False)
    assert disk.store.files.visible(STORE) == []
    disk.store.files.set_visible(STORE, NAME, visible=True)
    assert [r.entry.name for r in disk.store.files.visible(STORE)] == [NAME]
    assert disk.store.files.newest.written(GROUP) == [StoreVersion(STORE, version(1))]
    assert (await disk.store.uploads.take_over(STORE, SST, disk.inbox(b"sst"))).visible


async def test_the_newest_versions_follow_every_change(disk: Disk) -> None:
    def newest() -> tuple[list[Version], list[Version]]:
        held, written = disk.store.files.newest.held(GROUP), disk.store.files.newest.written(GROUP)
        return [v.version for v in held], [v.version for v in written]

    assert newest() == ([], [])
    for number in (1, 2):
        await disk.store.uploads.take_over(
            STORE, changelog_name(version(number)), disk.inbox(b"x"), tuple(version(n) for n in range(1, number))
        )
        before = [version(1)] if number == 2 else []
        assert newest() == ([version(number)], before)
        disk.store.files.set_visible(STORE, changelog_name(version(number)), visible=True)
        assert newest() == ([version(number)], [version(number)])
    await disk.store.removal.remove(STORE, [changelog_name(version(2))])
    assert newest() == ([version(1)], [version(1)])
    disk.store.removal.drop_job(STORE.job, Epoch(9, 9), [GROUP])
    assert newest() == ([], [])


async def test_a_heartbeat_does_not_look_at_all_that_others_have_written(
    disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked, written = [], NewestVersions._is_committed

    def count(self: NewestVersions, store: StoreId, version: Version) -> bool:
        looked.append(version)
        return written(self, store, version)

    monkeypatch.setattr(NewestVersions, "_is_committed", count)
    for number in range(1, 6):
        await disk.store.received.receive_whole(entry_of(b"x", changelog_name(version(number))), [b"x"])
        assert disk.store.files.newest.written(GROUP) == []
    assert len(looked) == 1


async def test_inbox_takes_plain_files_only(disk: Disk, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("secret")
    link = disk.folder / "inbox" / "link"
    link.symlink_to(secret)
    fifo = disk.folder / "inbox" / "fifo"
    os.mkfifo(fifo)
    for bad in (link, fifo, disk.folder / "inbox"):
        with pytest.raises(InvalidRequestError):
            await disk.store.uploads.take_over(STORE, NAME, bad)
    with pytest.raises(UnknownError):
        await disk.store.uploads.take_over(STORE, NAME, disk.folder / "inbox" / "absent")
    assert secret.exists()
    assert disk.store.files.record(STORE, NAME) is None


async def test_a_file_swapped_between_check_and_rename_is_refused(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    source = disk.inbox(b"good")
    move_in = files.move_in

    def swap_and_move(path: Path, target: Path, identity: tuple[int, int]) -> None:
        disk.inbox(b"evil", "other").rename(path)
        move_in(path, target, identity)

    monkeypatch.setattr(files, "move_in", swap_and_move)
    with pytest.raises(InvalidRequestError, match="replaced"):
        await disk.store.uploads.take_over(STORE, NAME, source)
    assert not disk.path(NAME).exists()


async def test_an_attempt_whose_answer_got_lost_can_be_made_again(disk: Disk) -> None:
    source = disk.inbox(b"one")
    first = await disk.store.uploads.take_over(STORE, NAME, source)
    assert not source.exists()
    assert await disk.reopen().uploads.take_over(STORE, NAME, source) == first


async def test_same_file_again_is_fine_another_one_is_not(disk: Disk) -> None:
    first = await disk.store.uploads.take_over(STORE, NAME, disk.inbox(b"one"))
    assert await disk.store.uploads.take_over(STORE, NAME, disk.inbox(b"one")) == first
    with pytest.raises(AlreadyThereError):
        await disk.store.uploads.take_over(STORE, NAME, disk.inbox(b"two"))
    incoming = await disk.store.received.begin(entry_of(b"two"), [b"two"])
    with pytest.raises(AlreadyThereError):
        await disk.store.received.finish(entry_of(b"two"), incoming)
    assert disk.path(NAME).read_bytes() == b"one"
    assert not list(disk.store.layout.tmp.iterdir())


async def test_zip_needs_its_files_and_spark_metadata(disk: Disk) -> None:
    name = "3_id3.zip"
    with pytest.raises(PreconditionError, match="000001-u"):
        await disk.store.uploads.take_over(STORE, name, disk.inbox(zip_bytes("000001-u.sst")))
    await disk.store.uploads.take_over(STORE, SST, disk.inbox(b"sst"))
    record = await disk.store.uploads.take_over(STORE, name, disk.inbox(zip_bytes("000001-u.sst")))
    assert record.entry.references == (SST,)
    assert (await disk.store.uploads.take_over(STORE, "4_id4.zip", disk.inbox(zip_bytes()))).entry.references == ()
    for bad in (b"no zip", zip_bytes("../../../etc/passwd")):
        with pytest.raises(InvalidRequestError):
            await disk.store.uploads.take_over(STORE, "5_id5.zip", disk.inbox(bad))


async def test_received_bytes_must_match(disk: Disk) -> None:
    entry = entry_of(b"hello world")
    incoming = await disk.store.received.begin(entry)
    await disk.store.received.append(entry, incoming, [b"hello "])
    await disk.store.received.append(entry, incoming, [b"wO", b"rld"])
    with pytest.raises(IntegrityError):
        await disk.store.received.finish(entry, incoming)
    assert not list(disk.store.layout.tmp.iterdir())
    record = await disk.store.received.receive_whole(entry, [b"hello ", memoryview(b"world")])
    assert (record.received, record.visible) == (True, True)


def open_files(disk: Disk) -> list[str]:
    """Files of the store that this process has open; not those made ahead, nor the index's, which come and go."""
    layout = disk.store.layout
    ahead = (str(layout.preallocated), str(layout.index))
    names = [os.path.realpath(path) for path in Path("/proc/self/fd").iterdir()]
    return sorted(name for name in names if name.startswith(str(layout.root)) and not name.startswith(ahead))


async def test_a_receiver_that_is_cancelled_leaves_nothing_open(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    entry, under_way, go_on = entry_of(b"hello world"), threading.Event(), threading.Event()
    write = Incoming.write

    def slow(self: Incoming, pieces: Sequence[bytes]) -> None:
        under_way.set()
        assert go_on.wait(10)
        write(self, pieces)

    monkeypatch.setattr(Incoming, "write", slow)
    open_before = open_files(disk)
    receiving = asyncio.create_task(disk.store.received.begin(entry, [b"hello "]))
    assert await asyncio.to_thread(under_way.wait, 10)
    receiving.cancel()
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await receiving
    assert not list(disk.store.layout.tmp.iterdir())
    assert open_files(disk) == open_before


async def test_no_space_below_the_reserve(tmp_path: Path) -> None:
    store = Store.open("me", tmp_path / "data", reserve_bytes=1 << 60)
    path = tmp_path / "data" / "inbox" / "x"
    path.write_bytes(b"x")
    with pytest.raises(NoSpaceError, match="reserve"):
        await store.uploads.take_over(STORE, NAME, path)
    with pytest.raises(NoSpaceError):
        await store.received.receive_whole(entry_of(b"x"), [b"x"])
    assert path.exists()
    store.close()


async def test_everything_survives_a_restart(disk: Disk) -> None:
    await disk.store.uploads.take_over(STORE, NAME, disk.inbox(b"one"), (version(0),))
    disk.store.files.set_visible(STORE, NAME, visible=True)
    disk.store.index.put_epoch(GROUP, Epoch(2, 5))
    assert disk.store.retention.raise_floor(STORE, version(1))
    assert not disk.store.retention.raise_floor(STORE, version(1))
    before, incarnation = disk.store.files.record(STORE, NAME), disk.store.incarnation
    store = disk.reopen()
    assert store.files.record(STORE, NAME) == before
    assert store.incarnation == incarnation
    assert store.index.epochs() == {GROUP: Epoch(2, 5)}
    assert store.retention.floor(STORE) == version(1)
    assert store.files.stored_bytes() == 3


async def test_recovery_drops_missing_truncated_and_altered_files_and_orphans(disk: Disk) -> None:
    for number in range(1, 5):
        await disk.store.uploads.take_over(STORE, changelog_name(version(number)), disk.inbox(b"content"))
    disk.path(changelog_name(version(1))).unlink()
    disk.path(changelog_name(version(2))).write_bytes(b"cont")
    disk.path(changelog_name(version(3))).write_bytes(b"CONTENT")
    disk.path(changelog_name(version(9))).write_bytes(b"renamed, but never in the index")
    disk.store.layout.temporary().write_bytes(b"half a transfer")
    store = disk.reopen()
    assert [e.name for e in store.catalogue.store(STORE).entries()] == [changelog_name(version(4))]
    assert [p.name for p in disk.path("x").parent.iterdir()] == [changelog_name(version(4))]
    assert not list(store.layout.tmp.iterdir())


async def test_after_a_reboot_every_byte_is_checked(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    await disk.store.uploads.take_over(STORE, NAME, disk.inbox(b"content"))
    path, incarnation = disk.path(NAME), disk.store.incarnation
    status = path.stat()
    path.write_bytes(b"c0ntent")
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert disk.reopen().files.record(STORE, NAME) is not None
    monkeypatch.setattr(recovery, "boot_id", lambda: "another boot")
    store = disk.reopen()
    assert store.files.record(STORE, NAME) is None
    assert store.incarnation != incarnation


async def test_a_lost_index_is_another_incarnation(disk: Disk) -> None:
    await disk.store.uploads.take_over(STORE, NAME, disk.inbox(b"one"))
    incarnation = disk.store.incarnation
    disk.store.close()
    shutil.rmtree(disk.folder / "index")
    disk.store = Store.open("me", disk.folder, 0, empty_store=True)
    assert disk.store.incarnation != incarnation
    assert not disk.path(NAME).exists()


async def test_a_data_folder_has_one_owner(disk: Disk) -> None:
    with pytest.raises(AlreadyThereError, match="another sidecar"):
        Store.open("me", disk.folder, 0)


async def test_damage_is_seen_in_size_time_and_bytes(disk: Disk) -> None:
    await disk.store.uploads.take_over(STORE, NAME, disk.inbox(b"one"))
    await disk.store.uploads.take_over(STORE, SST, disk.inbox(b"sst"))
    names = [NAME, SST]
    assert await disk.store.damaged(STORE, names) == []
    os.utime(disk.path(SST))
    assert await disk.store.damaged(STORE, names) == []  # touched, but every byte is right
    for name in names:
        disk.path(name).write_bytes(b"bad")
    assert await disk.store.damaged(STORE, names) == names
    disk.path(SST).unlink()
    assert await disk.store.damaged(STORE, [SST]) == [SST]


async def test_a_crash_after_the_index_forgot_a_file_leaves_no_trace(
    disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """remove() dies between index and disk: the file is an orphan of the next start."""
    await disk.store.uploads.take_over(STORE, NAME, disk.inbox(b"one"))

    def crash(self: Path, target: Path) -> Path:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", crash)
        with pytest.raises(KeyboardInterrupt):
            await disk.store.removal.remove(STORE, [NAME])
    assert disk.path(NAME).exists()
    assert disk.reopen().files.record(STORE, NAME) is None
    assert not disk.path(NAME).exists()


async def test_a_file_that_is_taken_out_counts_no_longer_before_it_is_deleted(disk: Disk) -> None:
    await disk.store.uploads.take_over(STORE, NAME, disk.inbox(b"one"))
    trashed = disk.store.removal.take_out(STORE, [NAME, "not-here"])
    assert disk.store.files.record(STORE, NAME) is None
    assert not disk.path(NAME).exists()
    assert [path.read_bytes() for path in trashed] == [b"one"]
    await disk.store.removal.delete(trashed)
    assert not any(path.exists() for path in trashed)
    assert disk.store.removal.take_out(STORE, [NAME]) == []


async def test_pins_are_counted_and_end_with_the_session(disk: Disk) -> None:
    for number in (1, 2):
        await disk.store.uploads.take_over(STORE, changelog_name(version(number)), disk.inbox(b"c"), lineage_to(number))
    await disk.store.uploads.take_over(STORE, "3_id3.zip", disk.inbox(zip_bytes()))
    disk.store.retention.raise_floor(STORE, version(3))
    pinned = StoreVersion(STORE, version(1))
    disk.store.pins.add("s", [pinned])
    disk.store.pins.add("s", [pinned])
    assert await disk.store.removal.collect(STORE, ()) == (changelog_name(version(2)),)
    disk.store.pins.release("s", [pinned])
    assert await disk.store.removal.collect(STORE, ()) == ()
    disk.store.pins.end("s")
    disk.store.pins.release("s", [pinned])
    assert await disk.store.removal.collect(STORE, ()) == (NAME,)
    assert disk.store.files.stored_bytes(GROUP) == len(zip_bytes())


def lineage_to(number: int) -> tuple[Version, ...]:
    return tuple(version(n) for n in range(1, number))


async def test_newcomers_of_one_name_take_turns(disk: Disk) -> None:
    entries = [disk.store.received.receive_whole(entry_of(b"same"), [b"same"]) for _ in range(8)]
    records = await asyncio.gather(*entries)
    assert len({record.arrived_ns for record in records}) == 1
    assert not list(disk.store.layout.tmp.iterdir())


async def test_files_keep_their_order_when_the_wall_clock_is_set_back(
    disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a data file would seem older than the newest snapshot, and be deleted before its own comes."""
    await disk.store.uploads.take_over(STORE, SST, disk.inbox(b"sst"))
    await disk.store.uploads.take_over(STORE, snapshot_name(version(1)), disk.inbox(zip_bytes("000001-u.sst")))
    first = disk.store.files.record(STORE, snapshot_name(version(1)))
    now_ns = time.time_ns()
    for back_s in (0, 130, 260):
        monkeypatch.setattr(time, "time_ns", lambda back_s=back_s: now_ns - back_s * 10**9)
        monkeypatch.setattr(time, "time", lambda back_s=back_s: now_ns / 1e9 - back_s)
        name = f"SSTs/{back_s + 2:06d}-u.sst"
        late = await disk.store.uploads.take_over(STORE, name, disk.inbox(b"more"))
        assert first is not None
        assert late.arrived_ns > first.arrived_ns
        disk.store.retention.raise_floor(STORE, version(1))
        assert await disk.store.removal.collect(STORE, ()) == ()
        disk.reopen()
        assert await disk.store.removal.collect(STORE, ()) == ()


async def test_records_of_a_newer_rhino_open(disk: Disk) -> None:
    names = [changelog_name(version(1)), changelog_name(version(2))]
    for name in names:
        await disk.store.uploads.take_over(STORE, name, disk.inbox(b"x"))
    disk.store.index.put_epoch(GROUP, Epoch(1, 2))
    disk.store.retention.raise_floor(STORE, version(1))
    disk.store.close()
    options = Options(raw_mode=True)
    index = Rdict(str(disk.folder / "index"), options=options)
    keys = {key: json.loads(value) for key, value in index.items() if key[:2] in (b"f/", b"e/", b"l/")}
    assert len(keys) == 4
    for key, value in keys.items():
        index[key] = json.dumps([*value, ["a list"], {"more": 1}]).encode()
    index.close()
    store = disk.reopen()
    assert [entry.name for entry in store.files.entries()] == names
    assert (store.index.epochs(), store.retention.floor(STORE)) == ({GROUP: Epoch(1, 2)}, version(1))
    later = await store.uploads.take_over(STORE, changelog_name(version(3)), disk.inbox(b"x"))
    first = store.files.record(STORE, names[0])
    assert first is not None
    assert later.arrived_ns > first.arrived_ns


def test_metadata_of_a_newer_rhino_open(disk: Disk) -> None:
    scrub = ScrubRound(number=3, damaged=[Damage(STORE, SST, ())])
    more = json.dumps({**json.loads(scrub.to_json()), "newer": 1})
    assert ScrubRound.from_json(more) == scrub
    worker = Worker("w", "i", "h", "h:1")
    disk.store.index.put_metadata("known_workers", json.dumps([{**asdict(worker), "newer": [1]}]))
    assert KnownWorkers(disk.store.index).all() == [worker]


@pytest.mark.parametrize("job", ["..", ".", "../elsewhere", "/", "job/0"])
async def test_forgetting_a_job_of_any_name_deletes_nothing_but_its_own_folder(disk: Disk, job: str) -> None:
    elsewhere = disk.folder / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "file").write_text("mine")
    await disk.store.uploads.take_over(STORE, NAME, disk.inbox(b"state"))
    disk.store.removal.drop_job(job, Epoch(1, 1), [])
    disk.store.removal.drop_job(str(elsewhere), Epoch(1, 1), [])
    assert (elsewhere / "file").read_text() == "mine"
    assert disk.path(NAME).read_bytes() == b"state"
    with pytest.raises(LocalProtocolError, match="not deleted"):
        disk.store.trash.move(disk.store.layout.store / job / "..")


async def test_one_file_goes_at_once_and_from_disk_in_the_background(disk: Disk) -> None:
    await disk.store.uploads.take_over(STORE, NAME, disk.inbox(b"1"))
    disk.store.removal.drop_file(STORE, NAME)
    assert (STORE, NAME) not in disk.store.files
    assert not list(disk.store.layout.group(GROUP).rglob(NAME))
    async with asyncio.timeout(60):
        while list(disk.store.layout.tmp.iterdir()):  # noqa: ASYNC110  a deletion sends no notification
            await asyncio.sleep(0.01)


async def test_of_a_forgotten_job_nothing_is_remembered_but_its_fence(disk: Disk) -> None:
    """Also of a store of which all files had gone before."""
    store, places = disk.store, ("JobDurability._known", "NewestVersions._written", "NewestVersions._held")
    store.durability.learn(STORE.job, Durability.REPLICATED)
    await store.uploads.take_over(STORE, NAME, disk.inbox(b"1"))
    await store.removal.remove(STORE, [NAME])
    assert (store.files.newest.held(GROUP), store.files.newest.written(GROUP)) == ([], [])
    assert [sizes([store])[place] for place in places] == [1, 1, 1]
    store.removal.drop_job(STORE.job, Epoch(2, 1), [GROUP])
    assert [sizes([store])[place] for place in places] == [0, 0, 0]
    assert sizes([disk.reopen()])["JobDurability._known"] == 0
    assert disk.store.index.fences() == {STORE.job: Epoch(2, 1)}


async def test_records_that_can_not_be_are_left_out_at_a_start(disk: Disk, caplog: pytest.LogCaptureFixture) -> None:
    """A version that did not check names and epochs may have written them: such a store must still open."""
    await disk.store.uploads.take_over(STORE, NAME, disk.inbox(b"state"))
    disk.store.index.put_epoch(GROUP, Epoch(1, 7))
    index, entry = disk.store.index, disk.store.files._records[STORE, NAME]
    for job in ("a/b", "..", ""):
        index.put_epoch(GroupId(job, 0, 0), Epoch(1, 1))
        index.put_floor(StoreId(job, 0, 0, "default"), version(1))
        index.put_file(replace(entry, entry=replace(entry.entry, store=StoreId(job, 0, 0, "default"))))
        index.drop_job(job, Epoch(1, 1), [], [])
    poisoned = GroupId("job", 9, 9)
    index.put_epoch(poisoned, Epoch(2**64 - 1, 1))
    index.drop_job("gone", Epoch(1, 2**64 - 1), [], [])
    store = disk.reopen()
    assert store.index.epochs() == {GROUP: Epoch(1, 7)}
    assert store.index.fences() == {}
    assert store.retention.floor(STORE) is None
    assert disk.path(NAME).read_bytes() == b"state"
    assert len([record for record in caplog.records if "left out" in record.message]) >= 5


def _zip(metadata: bytes, **changes: int) -> bytes:
    """With these fields of the entry's headers changed afterwards: `flags`, `method`."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("metadata", metadata)
    content = bytearray(buffer.getvalue())
    for signature, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        at = content.index(signature) + offset
        content[at] |= changes.get("flags", 0)
        content[at + 2] = changes.get("method", content[at + 2])
    return bytes(content)


@pytest.mark.parametrize(
    "content",
    [
        _zip(b"v1\n{}", flags=1),  # encrypted
        _zip(b"v1\n{}", method=99),
        _zip(b"v1\n{}", method=14),  # not LZMA, as it says
        _zip(b"v1\n" + b"[" * 100_000),
        _zip(b"v1\n[]"),
        _zip(b"\xff\xfe"),
        b"PK",
    ],
)
async def test_a_zip_that_is_no_snapshot_is_the_callers_fault(disk: Disk, content: bytes) -> None:
    with pytest.raises(InvalidRequestError, match="not a snapshot"):
        await disk.store.uploads.take_over(STORE, "1_id1.zip", disk.inbox(content))
