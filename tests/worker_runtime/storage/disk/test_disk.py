"""A store whose disk is full or fails: what is refused, what goes on, what is noted. Errors are injected or real."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from crc32c import crc32c

from rhino_core.errors import IntegrityError, NoSpaceError, RhinoError, UnavailableError
from rhino_core.ids import DiskState, Epoch, FileEntry, StoreId, Version
from rhino_core.setting import MIB
from tests.worker_runtime.tmpfs import fill, tmpfs
from worker_runtime.storage.disk import disk, files
from worker_runtime.storage.disk.allocation import allocator
from worker_runtime.storage.disk.allocation.fallocate import reserve
from worker_runtime.storage.disk.disk import INDEX_BYTES, INODES_KEPT
from worker_runtime.storage.disk.incoming import Incoming
from worker_runtime.storage.index.database import Database
from worker_runtime.storage.store import Store

STORE = StoreId("job", 0, 3, "default")
SST = FileEntry(STORE, "SSTs/000001-x.sst", 9, crc32c(b"123456789"))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    made = Store.open("a", tmp_path, 0)
    yield made
    made.close()


def put(store: Store, content: bytes = b"123456789") -> Path:
    path = store.layout.inbox / "file"
    path.write_bytes(content)
    return path


def failing(number: int) -> Callable[..., Any]:
    def fail(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    return fail


@pytest.mark.parametrize("operation", ["rename", "preadv", "open"])
async def test_an_io_error_while_a_file_is_taken_over_is_told_and_remembered(
    store: Store, monkeypatch: pytest.MonkeyPatch, operation: str
) -> None:
    inbox = put(store)
    with monkeypatch.context() as patched:
        patched.setattr(files.os, operation, failing(errno.EIO))  # type: ignore[attr-defined]
        with pytest.raises(RhinoError):
            await store.uploads.take_over(STORE, SST.name, inbox)
    state, message = store.disk.state()
    if operation == "open":  # the client's file: it may be at fault itself
        assert state is DiskState.OK
    else:
        assert state is DiskState.FAILING
        assert "Input/output error" in message
    assert store.files.record(STORE, SST.name) is None


@pytest.mark.parametrize(
    ("number", "error", "state"),
    [
        (errno.EIO, IntegrityError, DiskState.FAILING),
        (errno.EROFS, IntegrityError, DiskState.FAILING),
        (errno.ENOSPC, NoSpaceError, DiskState.OK),
        (errno.EDQUOT, NoSpaceError, DiskState.OK),
        (errno.EMFILE, UnavailableError, DiskState.OK),
    ],
)
async def test_errors_of_incoming_files_have_their_kind(
    store: Store, monkeypatch: pytest.MonkeyPatch, number: int, error: type[RhinoError], state: DiskState
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(files.os, "writev", failing(number))  # type: ignore[attr-defined]
        with pytest.raises(error, match=r"000001-x\.sst"):
            await store.received.receive_whole(SST, [b"123456789"])
    assert store.disk.state()[0] is state
    assert list(store.layout.tmp.iterdir()) == []
    store.disk.check()


async def test_a_file_that_the_index_does_not_take_is_not_there(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise Exception("IO error: While appending to file: 000004.log: Input/output error")

    with monkeypatch.context() as patched:
        patched.setattr(Database, "put", broken)
        with pytest.raises(IntegrityError, match="index cannot be written"):
            await store.received.receive_whole(SST, [b"123456789"])
    assert store.disk.state()[0] is DiskState.FAILING
    assert not store.files.path(SST).exists()
    assert store.files.record(STORE, SST.name) is None
    await store.received.receive_whole(SST, [b"123456789"])
    assert store.disk.state()[0] is DiskState.FAILING, "until the sidecar is started again"


async def test_what_cannot_be_deleted_from_the_index_stays(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    await store.received.receive_whole(SST, [b"123456789"])
    with monkeypatch.context() as patched:
        patched.setattr(Database, "write", failing(errno.EIO))
        with pytest.raises(IntegrityError):
            await store.removal.remove(STORE, [SST.name])
    assert store.files.path(SST).read_bytes() == b"123456789"
    assert store.files.record(STORE, SST.name) is not None


async def test_a_file_that_cannot_be_deleted_does_not_count_any_more(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever removes a file tells the group afterwards that it is gone, as the index says."""
    await store.received.receive_whole(SST, [b"123456789"])
    with monkeypatch.context() as patched:
        patched.setattr(Path, "unlink", failing(errno.EIO))
        await store.removal.remove(STORE, [SST.name])
    assert store.files.record(STORE, SST.name) is None
    assert store.disk.state()[0] is DiskState.FAILING


def test_a_disk_that_reports_no_sizes_is_failing(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(os, "statvfs", failing(errno.ESTALE))
        assert (store.disk.free_bytes(), store.disk.capacity_bytes()) == (0, 0)
    assert store.disk.state()[0] is DiskState.FAILING
    assert store.disk.capacity_bytes() > 0


def test_a_partial_file_that_cannot_be_read_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    path.touch()
    monkeypatch.setattr("worker_runtime.storage.disk.incoming.checksum", failing(errno.EIO))
    with pytest.raises(OSError, match="Input/output error"):
        Incoming.resumed(path)
    assert str(path) not in {os.path.realpath(fd) for fd in Path("/proc/self/fd").iterdir()}


async def test_an_epoch_that_is_not_persisted_is_an_error(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Database, "put", failing(errno.EIO))
    with pytest.raises(IntegrityError, match="epoch of job/0/3"):
        store.index.put_epoch(STORE.group, Epoch(1, 1))


@pytest.mark.parametrize("reserved", [True, False], ids=["reserved", "announced"])
async def test_files_on_their_way_are_counted_before_they_are_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reserved: bool
) -> None:
    if not reserved:
        monkeypatch.setattr(allocator, "reserve", lambda fd, size_bytes: False)
    free = os.statvfs(tmp_path).f_bavail * os.statvfs(tmp_path).f_frsize
    slack = 600 * 1024 * 1024  # others use this disk meanwhile
    store = Store.open("a", tmp_path, free - 3 * slack)
    first = FileEntry(STORE, "SSTs/000001-x.sst", 2 * slack, 1)
    incoming = await store.received.begin(first, [b"begin"])
    assert incoming.reserved is reserved
    second = FileEntry(STORE, "SSTs/000002-x.sst", 2 * slack, 1)
    with pytest.raises(NoSpaceError, match=rf"{tmp_path}.* bytes free.*--reserve-mb") as refused:
        await store.received.begin(second)
    assert ("on their way" in str(refused.value)) is not reserved
    await store.received.abort(first, incoming)
    again = await store.received.begin(second)
    await store.received.abort(second, again)
    store.close()


async def test_reserved_space_is_no_part_of_a_file_and_returns_when_its_transfer_breaks(store: Store) -> None:
    size = 64 * 1024 * 1024
    entry = FileEntry(STORE, "SSTs/000001-x.sst", size, 1)
    incoming = await store.received.begin(entry, [bytes(2 * 1024 * 1024)])
    assert incoming.reserved
    assert incoming.path.stat().st_size == 2 * 1024 * 1024
    assert incoming.path.stat().st_blocks * 512 >= size
    await store.received.suspend(entry, incoming)
    (left,) = store.layout.partial.iterdir()
    assert left.stat().st_size == 2 * 1024 * 1024
    assert left.stat().st_blocks * 512 < size // 2
    again = await store.received.resume(entry)
    assert again is not None
    assert again.size_bytes == 2 * 1024 * 1024
    await store.received.abort(entry, again)


@pytest.fixture
async def crowded(tmp_path: Path) -> AsyncIterator[Store]:
    """The part that a broken transfer has left occupies the reserve."""
    with tmpfs(tmp_path / "disk", 32) as folder:
        store = Store.open("a", folder / "data", 4 * MIB)
        entry = FileEntry(STORE, "SSTs/000009-x.sst", 20 * MIB, 1)
        await store.received.suspend(entry, await store.received.begin(entry, [bytes(8 * MIB)]))
        fill(folder, 3 * MIB)
        assert (len(store.partials), store.disk.state()[0]) == (1, DiskState.FULL)
        yield store
        store.close()


async def test_unfinished_files_go_before_a_commit_is_refused(crowded: Store) -> None:
    await crowded.uploads.take_over(STORE, SST.name, put(crowded))
    assert (len(crowded.partials), crowded.disk.state()[0]) == (0, DiskState.OK)


async def test_unfinished_files_go_before_the_disk_counts_as_full(crowded: Store, tmp_path: Path) -> None:
    assert crowded.space.state() == (DiskState.OK, "")
    async with asyncio.timeout(10):
        while crowded.disk.state()[0] is DiskState.FULL:  # noqa: ASYNC110  a thread deletes
            await asyncio.sleep(0.01)
    assert len(crowded.partials) == 0
    (tmp_path / "disk" / "ballast").unlink()
    fill(tmp_path / "disk", 3 * MIB)
    assert crowded.space.state()[0] is DiskState.FULL, "there is nothing more to give up"


async def test_no_room_to_reserve_is_told_before_the_bytes_come(tmp_path: Path) -> None:
    with tmpfs(tmp_path / "disk", 16) as folder:
        file = (folder / "file").open("wb")
        with file, pytest.raises(OSError, match="No space left") as refused:
            reserve(file.fileno(), 17 * 1024 * 1024)
        assert refused.value.errno == errno.ENOSPC


async def test_a_disk_filled_to_the_last_byte_is_full_and_recovers_by_itself(tmp_path: Path) -> None:
    with tmpfs(tmp_path / "disk", 16) as folder:
        store = Store.open("a", folder / "data", 4 * 1024 * 1024)
        await store.uploads.take_over(STORE, SST.name, put(store))
        ballast = fill(folder, 3 * 1024 * 1024)
        assert store.disk.state()[0] is DiskState.FULL
        with pytest.raises(NoSpaceError, match=rf"{folder}.*bytes free.*--reserve-mb"):
            await store.uploads.take_over(STORE, "SSTs/000002-x.sst", put(store))
        store.index.put_epoch(STORE.group, Epoch(1, 1))
        assert store.retention.raise_floor(STORE, Version(1, "id1")), "the index has room at the watermark"
        ballast.unlink()
        ballast = fill(folder, 0)  # and now somebody else has taken the reserve as well
        with pytest.raises(NoSpaceError, match="index cannot be written"):
            store.index.put_metadata("key", "value" * 2000)
        assert store.disk.state()[0] is DiskState.FULL
        with pytest.raises(NoSpaceError):
            await store.removal.remove(STORE, [SST.name])
        assert store.files.record(STORE, SST.name) is not None
        ballast.unlink()
        assert store.disk.state()[0] is DiskState.OK
        store.index.put_metadata("key", "value")
        await store.uploads.take_over(STORE, "SSTs/000002-x.sst", put(store))
        await store.removal.remove(STORE, [SST.name])
        store.close()
        again = Store.open("a", folder / "data", INDEX_BYTES)
        assert [entry.name for entry in again.files.entries()] == ["SSTs/000002-x.sst"]
        assert (again.index.metadata("key"), again.index.epochs()) == ("value", {STORE.group: Epoch(1, 1)})
        again.close()


def occupy_inodes(folder: Path, leave: int) -> Path:
    """A folder of empty files that leaves so many inodes free."""
    crowd = folder / "crowd"
    crowd.mkdir()
    for number in range(os.statvfs(folder).f_favail - leave):
        (crowd / str(number)).touch()
    return crowd


async def test_a_disk_without_free_inodes_is_full_and_takes_no_file(tmp_path: Path) -> None:
    with tmpfs(tmp_path / "disk", 32, inodes=3000) as folder:
        store = Store.open("a", folder / "data", 0)
        assert store.disk.state() == (DiskState.OK, "")
        crowd = occupy_inodes(folder, INODES_KEPT // 2)
        state, message = store.disk.state()
        assert state is DiskState.FULL
        assert message.startswith(
            f"{store.layout.store}: {INODES_KEPT // 2} inodes free of 3000, and {INODES_KEPT} are"
        )
        with pytest.raises(NoSpaceError, match="499 inodes free of 3000"):
            await store.uploads.take_over(STORE, SST.name, put(store))
        shutil.rmtree(crowd)
        assert store.disk.state() == (DiskState.OK, "")
        await store.uploads.take_over(STORE, SST.name, put(store))
        store.close()


async def test_a_disk_is_full_from_a_write_that_a_quota_refuses_until_a_file_can_be_made(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0
    monkeypatch.setattr("worker_runtime.storage.disk.disk.time.monotonic", lambda: now)
    with monkeypatch.context() as quota:
        quota.setattr(files.os, "rename", failing(errno.EDQUOT))  # type: ignore[attr-defined]
        quota.setattr(disk, "reserve", failing(errno.EDQUOT))
        with pytest.raises(NoSpaceError):
            await store.uploads.take_over(STORE, SST.name, put(store))
        for _ in range(2):
            state, message = store.disk.state()
            assert state is DiskState.FULL
            refused = "a write was refused (Disk quota exceeded); raise the quota of this user or project"
            assert message == f"{store.layout.store}: {refused}"
            now += disk.PROBE_S
    assert store.disk.state() == (DiskState.OK, "")


async def test_a_write_that_was_refused_once_does_not_make_the_disk_full(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(files.os, "rename", failing(errno.ENOSPC))  # type: ignore[attr-defined]
        with pytest.raises(NoSpaceError):
            await store.uploads.take_over(STORE, SST.name, put(store))
    assert store.disk.state() == (DiskState.OK, "")
    assert not [path for path in store.layout.store.iterdir() if path.is_file()], "the probe has left nothing"
