"""Files of one job as files of another, on a real disk with a real index."""

from __future__ import annotations

import errno
import os
from dataclasses import replace

import pytest

from rhino_core.errors import AlreadyThereError, PreconditionError, UnknownError
from rhino_core.ids import Epoch, FileEntry, StoreVersion, Version
from tests.worker_runtime.scenario import STORE, version
from tests.worker_runtime.storage.rig import NAME, SST, Disk
from worker_runtime.storage.arriving.zips import zip_references
from worker_runtime.storage.disk import files

TWIN, THIRD = (STORE._replace(job=job) for job in ("twin", "third"))
MOVED = TWIN._replace(operator=STORE.operator + 1)


async def stored(disk: Disk, name: str = SST, content: bytes = b"content") -> FileEntry:
    return (await disk.store.uploads.take_over(STORE, name, disk.inbox(content))).entry


async def test_a_link_is_a_file_of_its_own_job_and_is_not_read(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    first = await stored(disk)
    monkeypatch.setattr(files, "checksum", lambda fd: pytest.fail("it was read"))
    linked = await disk.store.branches.link(first, TWIN)
    assert linked.entry == replace(first, store=TWIN, branch_of=STORE.job)
    assert disk.path(SST).samefile(disk.store.layout.path(TWIN, SST))
    again = await disk.store.branches.link(first, TWIN)
    assert again == linked
    record = disk.reopen().files.record(TWIN, SST)
    assert record is not None
    assert record.entry == linked.entry


async def test_a_version_is_hidden_until_it_is_committed(disk: Disk) -> None:
    linked = await disk.store.branches.link(await stored(disk, NAME), TWIN)
    assert not linked.visible
    disk.store.files.set_visible(TWIN, NAME, visible=True)
    assert [record.entry.name for record in disk.store.files.visible(TWIN)] == [NAME]
    assert disk.store.files.newest.written(TWIN.group)[0].version == version(1)


async def test_either_is_removed_alone(disk: Disk) -> None:
    first = await stored(disk)
    await disk.store.branches.link(first, TWIN)
    disk.store.removal.drop_job(STORE.job, Epoch(9, 9), [STORE.group])
    assert disk.store.layout.path(TWIN, SST).read_bytes() == b"content"
    assert disk.store.files.record(STORE, SST) is None
    await disk.store.removal.remove(TWIN, [SST])
    assert not disk.store.layout.path(TWIN, SST).exists()


async def test_branches_of_one_source_are_links_of_each_other_when_the_source_has_gone(disk: Disk) -> None:
    """Damage to one is damage to the other."""
    first = await stored(disk)
    twin = (await disk.store.branches.link(first, TWIN)).entry
    third = (await disk.store.branches.link(first, THIRD)).entry
    await disk.store.removal.remove(STORE, [SST])
    assert [record.entry for record in disk.store.files.hard_links(twin)] == [third]
    assert disk.store.files.twins(twin) == [], "its bytes come from the job that it is a branch of, or from others"
    await disk.store.removal.remove(THIRD, [SST])
    assert disk.store.files.hard_links(twin) == []


async def test_a_received_file_of_a_branch_is_linked_only_to_the_same_bytes(disk: Disk) -> None:
    first = await stored(disk)
    entry = replace(first, store=TWIN, branch_of=STORE.job)
    assert not await disk.store.received.receive_linked(replace(entry, branch_of=""))
    assert not await disk.store.received.receive_linked(replace(entry, crc32c=first.crc32c ^ 1))
    assert not await disk.store.received.receive_linked(replace(entry, size_bytes=first.size_bytes + 1))
    assert await disk.store.received.receive_linked(entry)


async def test_what_is_not_there_or_has_been_changed_is_not_linked(disk: Disk) -> None:
    first = await stored(disk)
    await stored(disk, NAME)
    with pytest.raises(UnknownError, match="is not here"):
        await disk.store.branches.link(replace(first, name="SSTs/000009-z.sst"), TWIN)
    disk.path(SST).write_bytes(b"longer than before")
    with pytest.raises(UnknownError, match="was changed on disk"):
        await disk.store.branches.link(first, TWIN)
    other = disk.inbox(b"something else")
    await disk.store.uploads.take_over(TWIN, NAME, other)
    changelog = disk.store.files.record(STORE, NAME)
    assert changelog is not None
    with pytest.raises(AlreadyThereError, match="another checksum"):
        await disk.store.branches.link(changelog.entry, TWIN)
    assert not list(disk.store.layout.tmp.iterdir())


async def test_a_link_under_another_operator_says_where_its_bytes_are(disk: Disk) -> None:
    first = await stored(disk)
    linked = await disk.store.branches.link(first, MOVED)
    assert linked.entry == replace(first, store=MOVED, branch_of=STORE.job, branch_operator=STORE.operator)
    record = disk.reopen().files.record(MOVED, SST)
    assert record is not None
    assert record.entry == linked.entry


async def test_links_under_different_operators_are_damaged_together(disk: Disk) -> None:
    first = await stored(disk)
    moved = (await disk.store.branches.link(first, MOVED)).entry
    third = (await disk.store.branches.link(moved, THIRD)).entry
    for entry, others in ((first, {MOVED, THIRD}), (moved, {STORE, THIRD}), (third, {STORE, MOVED})):
        assert {record.entry.store for record in disk.store.files.hard_links(entry)} == others
    disk.store.removal.drop_job(STORE.job, Epoch(9, 9), [STORE.group])
    assert [record.entry.store for record in disk.store.files.hard_links(moved)] == [THIRD]


async def test_a_received_file_is_linked_to_the_operator_that_it_names(disk: Disk) -> None:
    first = await stored(disk)
    entry = replace(first, store=MOVED, branch_of=STORE.job)
    assert not await disk.store.received.receive_linked(entry), "the same operator of that job has no such file"
    assert await disk.store.received.receive_linked(replace(entry, branch_operator=STORE.operator))


async def test_an_empty_store_is_a_hidden_snapshot_that_names_no_files(disk: Disk) -> None:
    made = await disk.store.branches.make_empty(StoreVersion(MOVED, Version(7, "born")))
    assert (made.entry.name, made.visible) == ("7_born.zip", False)
    assert zip_references(disk.store.layout.path(MOVED, "7_born.zip")) == ()
    assert disk.store.files.catalogue.store(MOVED).holds(Version(7, "born"))
    assert await disk.store.branches.make_empty(StoreVersion(MOVED, Version(7, "born"))) == made
    await disk.store.uploads.take_over(MOVED, "8_born.changelog", disk.inbox(b"something else"))
    taken = disk.inbox((disk.store.layout.path(MOVED, "7_born.zip")).read_bytes() + b"x")
    await disk.store.removal.remove(MOVED, ["7_born.zip"])
    await disk.store.uploads.take_over(MOVED, "7_born.zip", taken)
    with pytest.raises(AlreadyThereError, match="another checksum"):
        await disk.store.branches.make_empty(StoreVersion(MOVED, Version(7, "born")))


@pytest.mark.parametrize(
    ("number", "way_out"),
    [(errno.EMLINK, "forget branches"), (errno.EXDEV, "must be in one"), (errno.EPERM, "has no hard links")],
)
async def test_a_link_that_the_file_system_refuses_says_why(
    disk: Disk, monkeypatch: pytest.MonkeyPatch, number: int, way_out: str
) -> None:
    first = await stored(disk)

    def refuse(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("worker_runtime.storage.disk.incoming.os.link", refuse)
    with pytest.raises(PreconditionError, match=rf"{SST} cannot be linked: .*{os.strerror(number)}; .*{way_out}"):
        await disk.store.branches.link(first, TWIN)
