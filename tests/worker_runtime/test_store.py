"""The store on a real disk with a real index: take-over, checks, crash points, recovery."""

from __future__ import annotations

import asyncio
import os
import shutil
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from crc32c import crc32c

from rhino.errors import (
    AlreadyThereError,
    IntegrityError,
    InvalidRequestError,
    NoSpaceError,
    PreconditionError,
    UnknownError,
)
from rhino.ids import Epoch, FileEntry, StoreId, StoreVersion, Version
from tests.worker_runtime.cluster import zip_bytes
from tests.worker_runtime.scenario import GROUP, STORE, version
from worker_runtime.core.closure import changelog_name
from worker_runtime.storage import files, recovery
from worker_runtime.storage.files import Incoming
from worker_runtime.storage.store import Store

NAME = changelog_name(version(1))
SST = "SSTs/000001-u.sst"


class Disk:
    """A store that can be closed or "killed", and opened again."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.store = Store.open("me", folder, 0)

    def reopen(self) -> Store:
        self.store.close()
        self.store = Store.open("me", self.folder, 0)
        return self.store

    def inbox(self, content: bytes, name: str = "new") -> Path:
        path = self.folder / "inbox" / name
        path.write_bytes(content)
        return path

    def path(self, name: str) -> Path:
        return self.store.layout.path(STORE, name)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    made = Disk(tmp_path / "data")
    yield made
    made.store.close()


def entry_of(content: bytes, name: str = NAME) -> FileEntry:
    return FileEntry(STORE, name, len(content), crc32c(content), written_by="other")


async def test_take_over_consumes_the_inbox_and_hides_versions(disk: Disk) -> None:
    source = disk.inbox(b"one")
    record = await disk.store.take_over(STORE, NAME, source)
    assert not source.exists()
    assert disk.path(NAME).read_bytes() == b"one"
    assert (record.entry.crc32c, record.entry.written_by, record.visible) == (crc32c(b"one"), "me", False)
    assert disk.store.visible_files(STORE) == []
    disk.store.make_visible(STORE, NAME)
    assert [r.entry.name for r in disk.store.visible_files(STORE)] == [NAME]
    assert disk.store.newest_written(GROUP) == [StoreVersion(STORE, version(1))]
    assert (await disk.store.take_over(STORE, SST, disk.inbox(b"sst"))).visible


async def test_the_newest_versions_follow_every_change(disk: Disk) -> None:
    def newest() -> tuple[list[Version], list[Version]]:
        held, written = disk.store.newest_held(GROUP), disk.store.newest_written(GROUP)
        return [v.version for v in held], [v.version for v in written]

    assert newest() == ([], [])
    for number in (1, 2):
        await disk.store.take_over(
            STORE, changelog_name(version(number)), disk.inbox(b"x"), tuple(version(n) for n in range(1, number))
        )
        before = [version(1)] if number == 2 else []
        assert newest() == ([version(number)], before)
        disk.store.make_visible(STORE, changelog_name(version(number)))
        assert newest() == ([version(number)], [version(number)])
    await disk.store.remove(STORE, [changelog_name(version(2))])
    assert newest() == ([version(1)], [version(1)])
    disk.store.drop_job(STORE.job, Epoch(9, 9), [GROUP])
    assert newest() == ([], [])


async def test_a_heartbeat_does_not_look_at_all_that_others_have_written(
    disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked, written = [], Store._written

    def count(self: Store, store: StoreId, version: Version) -> bool:
        looked.append(version)
        return written(self, store, version)

    monkeypatch.setattr(Store, "_written", count)
    for number in range(1, 6):
        await disk.store.receive_whole(entry_of(b"x", changelog_name(version(number))), [b"x"])
        assert disk.store.newest_written(GROUP) == []
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
            await disk.store.take_over(STORE, NAME, bad)
    with pytest.raises(UnknownError):
        await disk.store.take_over(STORE, NAME, disk.folder / "inbox" / "absent")
    assert secret.exists()
    assert disk.store.record(STORE, NAME) is None


async def test_a_file_swapped_between_check_and_rename_is_refused(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    source = disk.inbox(b"good")
    move_in = files.move_in

    def swap_and_move(path: Path, target: Path, identity: tuple[int, int]) -> None:
        disk.inbox(b"evil", "other").rename(path)
        move_in(path, target, identity)

    monkeypatch.setattr(files, "move_in", swap_and_move)
    with pytest.raises(InvalidRequestError, match="replaced"):
        await disk.store.take_over(STORE, NAME, source)
    assert not disk.path(NAME).exists()


async def test_an_attempt_whose_answer_got_lost_can_be_made_again(disk: Disk) -> None:
    source = disk.inbox(b"one")
    first = await disk.store.take_over(STORE, NAME, source)
    assert not source.exists()
    assert await disk.reopen().take_over(STORE, NAME, source) == first


async def test_same_file_again_is_fine_another_one_is_not(disk: Disk) -> None:
    first = await disk.store.take_over(STORE, NAME, disk.inbox(b"one"))
    assert await disk.store.take_over(STORE, NAME, disk.inbox(b"one")) == first
    with pytest.raises(AlreadyThereError):
        await disk.store.take_over(STORE, NAME, disk.inbox(b"two"))
    incoming = await disk.store.start_incoming(entry_of(b"two"), [b"two"])
    with pytest.raises(AlreadyThereError):
        await disk.store.finish_incoming(entry_of(b"two"), incoming)
    assert disk.path(NAME).read_bytes() == b"one"
    assert not list(disk.store.layout.tmp.iterdir())


async def test_zip_needs_its_files_and_spark_metadata(disk: Disk) -> None:
    name = "3_id3.zip"
    with pytest.raises(PreconditionError, match="000001-u"):
        await disk.store.take_over(STORE, name, disk.inbox(zip_bytes("000001-u.sst")))
    await disk.store.take_over(STORE, SST, disk.inbox(b"sst"))
    record = await disk.store.take_over(STORE, name, disk.inbox(zip_bytes("000001-u.sst")))
    assert record.entry.references == (SST,)
    assert (await disk.store.take_over(STORE, "4_id4.zip", disk.inbox(zip_bytes()))).entry.references == ()
    for bad in (b"no zip", zip_bytes("../../../etc/passwd")):
        with pytest.raises(InvalidRequestError):
            await disk.store.take_over(STORE, "5_id5.zip", disk.inbox(bad))


async def test_received_bytes_must_match(disk: Disk) -> None:
    entry = entry_of(b"hello world")
    incoming = await disk.store.start_incoming(entry)
    await disk.store.write_incoming(entry, incoming, [b"hello "])
    await disk.store.write_incoming(entry, incoming, [b"wO", b"rld"])
    with pytest.raises(IntegrityError):
        await disk.store.finish_incoming(entry, incoming)
    assert not list(disk.store.layout.tmp.iterdir())
    record = await disk.store.receive_whole(entry, [b"hello ", memoryview(b"world")])
    assert (record.received, record.visible) == (True, True)


def open_files(disk: Disk) -> list[str]:
    """Files of the store that this process has open; not those made ahead, nor the index's, which come and go."""
    layout = disk.store.layout
    ahead = (str(layout.spare), str(layout.index))
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
    receiving = asyncio.create_task(disk.store.start_incoming(entry, [b"hello "]))
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
        await store.take_over(STORE, NAME, path)
    with pytest.raises(NoSpaceError):
        await store.receive_whole(entry_of(b"x"), [b"x"])
    assert path.exists()
    store.close()


async def test_everything_survives_a_restart(disk: Disk) -> None:
    await disk.store.take_over(STORE, NAME, disk.inbox(b"one"), (version(0),))
    disk.store.make_visible(STORE, NAME)
    disk.store.put_epoch(GROUP, Epoch(2, 5))
    assert disk.store.raise_floor(STORE, version(1))
    assert not disk.store.raise_floor(STORE, version(1))
    before, incarnation = disk.store.record(STORE, NAME), disk.store.incarnation
    store = disk.reopen()
    assert store.record(STORE, NAME) == before
    assert store.incarnation == incarnation
    assert store.epochs() == {GROUP: Epoch(2, 5)}
    assert store.floor(STORE) == version(1)
    assert store.stored_bytes() == 3


async def test_recovery_drops_missing_truncated_and_altered_files_and_orphans(disk: Disk) -> None:
    for number in range(1, 5):
        await disk.store.take_over(STORE, changelog_name(version(number)), disk.inbox(b"content"))
    disk.path(changelog_name(version(1))).unlink()
    disk.path(changelog_name(version(2))).write_bytes(b"cont")
    disk.path(changelog_name(version(3))).write_bytes(b"CONTENT")
    disk.path(changelog_name(version(9))).write_bytes(b"renamed, but never in the index")
    (disk.store.layout.tmp / "half").write_bytes(b"half a transfer")
    store = disk.reopen()
    assert [e.name for e in store.catalogue.store(STORE).entries()] == [changelog_name(version(4))]
    assert [p.name for p in disk.path("x").parent.iterdir()] == [changelog_name(version(4))]
    assert not list(store.layout.tmp.iterdir())


async def test_after_a_reboot_every_byte_is_checked(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    await disk.store.take_over(STORE, NAME, disk.inbox(b"content"))
    path, incarnation = disk.path(NAME), disk.store.incarnation
    status = path.stat()
    path.write_bytes(b"c0ntent")
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert disk.reopen().record(STORE, NAME) is not None
    monkeypatch.setattr(recovery, "boot_id", lambda: "another boot")
    store = disk.reopen()
    assert store.record(STORE, NAME) is None
    assert store.incarnation != incarnation


async def test_a_lost_index_is_another_incarnation(disk: Disk) -> None:
    await disk.store.take_over(STORE, NAME, disk.inbox(b"one"))
    incarnation = disk.store.incarnation
    disk.store.close()
    shutil.rmtree(disk.folder / "index")
    disk.store = Store.open("me", disk.folder, 0)
    assert disk.store.incarnation != incarnation
    assert not disk.path(NAME).exists()


async def test_a_data_folder_has_one_owner(disk: Disk) -> None:
    with pytest.raises(AlreadyThereError, match="another sidecar"):
        Store.open("me", disk.folder, 0)


async def test_damage_is_seen_in_size_time_and_bytes(disk: Disk) -> None:
    await disk.store.take_over(STORE, NAME, disk.inbox(b"one"))
    await disk.store.take_over(STORE, SST, disk.inbox(b"sst"))
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
    await disk.store.take_over(STORE, NAME, disk.inbox(b"one"))

    def crash(self: Path, target: Path) -> Path:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", crash)
        with pytest.raises(KeyboardInterrupt):
            await disk.store.remove(STORE, [NAME])
    assert disk.path(NAME).exists()
    assert disk.reopen().record(STORE, NAME) is None
    assert not disk.path(NAME).exists()


async def test_pins_are_counted_and_end_with_the_session(disk: Disk) -> None:
    for number in (1, 2):
        await disk.store.take_over(STORE, changelog_name(version(number)), disk.inbox(b"c"), lineage_to(number))
    await disk.store.take_over(STORE, "3_id3.zip", disk.inbox(zip_bytes()))
    disk.store.raise_floor(STORE, version(3))
    pinned = StoreVersion(STORE, version(1))
    disk.store.pins.add("s", [pinned])
    disk.store.pins.add("s", [pinned])
    assert await disk.store.collect(STORE, ()) == (changelog_name(version(2)),)
    disk.store.pins.release("s", [pinned])
    assert await disk.store.collect(STORE, ()) == ()
    disk.store.pins.end("s")
    disk.store.pins.release("s", [pinned])
    assert await disk.store.collect(STORE, ()) == (NAME,)
    assert disk.store.stored_bytes(GROUP) == len(zip_bytes())


def lineage_to(number: int) -> tuple[Version, ...]:
    return tuple(version(n) for n in range(1, number))


async def test_newcomers_of_one_name_take_turns(disk: Disk) -> None:
    entries = [disk.store.receive_whole(entry_of(b"same"), [b"same"]) for _ in range(8)]
    records = await asyncio.gather(*entries)
    assert len({record.arrived_ns for record in records}) == 1
    assert not list(disk.store.layout.tmp.iterdir())
