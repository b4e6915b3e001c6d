"""Data files with the same bytes under several names: sent once, kept once, damaged together; real disks and sidecars.

Spark uploads a file again, under another name, while an upload of it is under way.
"""

from __future__ import annotations

import asyncio
import errno
import os
from dataclasses import replace
from pathlib import Path

import pytest
from crc32c import crc32c

from rhino_core.errors import IntegrityError
from rhino_core.ids import Epoch, FileEntry
from rhino_core.rpc.convert import epoch_to_pb, file_to_pb
from rhino_pb import peer_pb2
from tests.worker_runtime.cluster import Client, Cluster, Process, changelog_bytes, zip_bytes
from tests.worker_runtime.pushing import adopted, data_frame, stream
from tests.worker_runtime.scenario import STORE, version, worker
from tests.worker_runtime.storage.rig import Disk
from tests.worker_runtime.support.resume import statistics, stored
from tests.worker_runtime.support.scrub import flip_a_bit
from tests.worker_runtime.support.scrub import start as start_scrub
from tests.worker_runtime.support.scrub import until as until_scrub
from worker_runtime.push.core.framing import packed
from worker_runtime.storage.disk import files

SIZE = 3_000_000
CONTENT = os.urandom(SIZE)
FIRST, AGAIN, THIRD = (f"SSTs/00000{number}-{id_}.sst" for number, id_ in ((1, "x"), (1, "y"), (1, "z")))


def path_of(process: Process, name: str) -> Path:
    return process.settings.data_dir / "store" / str(STORE) / name


# ---------------------------------------------------------------- taken over


def linked(disk: Disk, name: str) -> Path:
    """In the inbox, a hard link of the stored file."""
    path = disk.folder / "inbox" / "link"
    os.link(disk.path(name), path)
    return path


async def test_a_hard_link_of_a_stored_file_is_known_and_not_read(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    first = await disk.store.uploads.take_over(STORE, FIRST, disk.inbox(CONTENT))
    read: list[int] = []
    monkeypatch.setattr(files, "checksum", read.append)
    again = await disk.store.uploads.take_over(STORE, AGAIN, linked(disk, FIRST))
    third = await disk.store.uploads.take_over(STORE, THIRD, linked(disk, AGAIN))
    assert not read, "the store has read them once"
    assert [record.entry.same_as for record in (first, again, third)] == ["", FIRST, FIRST]
    assert {record.entry.crc32c for record in (first, again, third)} == {first.entry.crc32c}
    assert disk.path(FIRST).stat().st_ino == disk.path(THIRD).stat().st_ino
    reopened = disk.reopen().files.record(STORE, THIRD)
    assert reopened is not None
    assert reopened.entry == third.entry


async def test_a_copy_is_known_by_its_bytes(disk: Disk) -> None:
    """There are no hard links if spark.local.dir is on another file system."""
    await disk.store.uploads.take_over(STORE, FIRST, disk.inbox(CONTENT))
    assert (await disk.store.uploads.take_over(STORE, AGAIN, disk.inbox(CONTENT))).entry.same_as == FIRST
    record = disk.store.files.record(STORE, AGAIN)
    assert record is not None
    assert not disk.store.files.hard_links(record.entry)


async def test_the_same_size_and_checksum_do_not_make_the_same_file(
    disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "checksum", lambda fd: 7)
    await disk.store.uploads.take_over(STORE, FIRST, disk.inbox(CONTENT))
    assert (await disk.store.uploads.take_over(STORE, AGAIN, disk.inbox(CONTENT[::-1]))).entry.same_as == ""


async def test_the_same_bytes_take_room_once(disk: Disk) -> None:
    await disk.store.uploads.take_over(STORE, FIRST, disk.inbox(CONTENT))
    await disk.store.uploads.take_over(STORE, AGAIN, linked(disk, FIRST))
    assert disk.store.files.stored_bytes() == SIZE
    await disk.store.removal.remove(STORE, [FIRST])
    assert disk.store.files.stored_bytes(STORE.group) == SIZE
    await disk.store.removal.remove(STORE, [AGAIN])
    assert disk.store.files.stored_bytes() == 0


@pytest.mark.parametrize("damaged", [True, False])
async def test_a_link_of_a_file_that_is_dropped_meanwhile_is_read(disk: Disk, damaged: bool) -> None:
    """Else the damage would come in under the new name, and "repair" the file that it came from."""
    first = await disk.store.uploads.take_over(STORE, FIRST, disk.inbox(CONTENT))
    entry = replace(first.entry, name=AGAIN, same_as=FIRST)
    incoming = disk.store.incoming.link(entry, [first])
    assert incoming is not None
    if damaged:
        flip_a_bit(disk.path(FIRST))
    await disk.store.removal.remove(STORE, [FIRST])
    if not damaged:
        assert (await disk.store.received.finish(entry, incoming)).entry == entry
        return
    with pytest.raises(IntegrityError, match="are damaged"):
        await disk.store.received.finish(entry, incoming)
    assert disk.store.files.record(STORE, AGAIN) is None
    assert not disk.path(AGAIN).exists()
    assert disk.reopen().files.record(STORE, AGAIN) is None


async def test_a_link_that_is_there_already_leaves_nothing_behind(disk: Disk) -> None:
    """A rename does nothing when both names are links of one file: an attempt was cancelled halfway."""
    first = await disk.store.uploads.take_over(STORE, FIRST, disk.inbox(CONTENT))
    os.link(disk.path(FIRST), disk.path(AGAIN))
    assert await disk.store.received.receive_linked(replace(first.entry, name=AGAIN, same_as=FIRST))
    assert not list(disk.store.layout.tmp.iterdir())


async def test_a_link_that_cannot_be_opened_leaves_nothing_behind(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    first = await disk.store.uploads.take_over(STORE, FIRST, disk.inbox(CONTENT))

    def no_more(*arguments: object) -> int:
        raise OSError(errno.EMFILE, "too many open files")

    monkeypatch.setattr(os, "open", no_more)
    assert disk.store.incoming.link(replace(first.entry, name=AGAIN, same_as=FIRST), [first]) is None
    monkeypatch.undo()
    assert not list(disk.store.layout.tmp.iterdir())


async def test_a_hard_link_that_has_been_changed_is_read(disk: Disk) -> None:
    first = await disk.store.uploads.take_over(STORE, FIRST, disk.inbox(CONTENT))
    link = linked(disk, FIRST)
    link.write_bytes(CONTENT[::-1])
    os.utime(link, ns=(0, first.seal.mtime_ns + 1))
    record = await disk.store.uploads.take_over(STORE, AGAIN, link)
    assert record.entry.same_as == ""
    assert record.entry.crc32c != first.entry.crc32c


async def test_a_link_under_way_is_no_partial_file_after_a_crash(disk: Disk) -> None:
    first = await disk.store.uploads.take_over(STORE, FIRST, disk.inbox(CONTENT))
    entry = (await disk.store.uploads.take_over(STORE, AGAIN, linked(disk, FIRST))).entry
    incoming = disk.store.incoming.link(entry, [first])
    assert incoming is not None
    assert incoming.path.exists()
    store = disk.reopen()
    assert not incoming.path.exists()
    assert not len(store.partials)
    assert disk.path(FIRST).read_bytes() == CONTENT


# ---------------------------------------------------------------- sent and fetched


async def add_again(client: Client, name: str, of: str = FIRST) -> None:
    """As Spark does it: a hard link of the same local file."""
    await client.add_link(STORE, name, client.path(STORE, of))


async def whole_before(cluster: Cluster, client: Client, *others: str) -> None:
    """A first commit, after which nobody catches up beside what is pushed."""
    await client.commit(STORE, version(1), changelog_bytes(1), [])
    reports = cluster.manager.reports
    keys = [(name, STORE.group) for name in others]
    await cluster.manager.until(lambda: all(key in reports and reports[key].whole for key in keys))


async def commit(client: Client, number: int, name: str) -> None:
    await client.commit(STORE, version(number), zip_bytes(name.removeprefix("SSTs/")), [], end="zip")


async def check_linked(process: Process, links: int) -> None:
    """One copy came, the other names are links of it."""
    got = await statistics(process)
    assert SIZE <= got.replicated_bytes_in < 2 * SIZE
    assert got.linked_bytes == links * SIZE
    assert path_of(process, AGAIN).read_bytes() == CONTENT
    assert path_of(process, AGAIN).stat().st_ino == path_of(process, FIRST).stat().st_ino


async def test_only_the_name_of_a_file_that_is_there_is_sent(cluster: Cluster) -> None:
    a, b, c = await cluster.start("a", "b", "c")
    async with a.attach(replicas=2) as client:
        await whole_before(cluster, client, "b", "c")
        await client.add(STORE, FIRST, CONTENT)
        await commit(client, 2, FIRST)
        await add_again(client, AGAIN)
        await add_again(client, THIRD, of=AGAIN)
        await commit(client, 3, AGAIN)
        await commit(client, 4, THIRD)
    for name, process in (("b", b), ("c", c)):
        await stored(cluster, name, 7)
        await check_linked(process, links=2)
    assert (await statistics(a)).replicated_bytes_out < 2 * SIZE


async def test_two_names_right_behind_one_another(cluster: Cluster) -> None:
    """The first has come, but is not in the store yet, when the second is announced."""
    cluster.manager.introduce(worker("x"))
    (a,) = await cluster.start("a")
    await adopted(cluster, STORE.group)
    assert a.worker is not None
    first = FileEntry(STORE, FIRST, SIZE, crc32c(CONTENT))
    replies: list[peer_pb2.PushReply] = []
    async with asyncio.timeout(20), stream(a.worker.peer_address, peer_pb2.LANE_BULK) as (wire, coming):
        wire.post(begin(1, first), data_frame(0, CONTENT), begin(2, replace(first, name=AGAIN, same_as=FIRST)))
        while [reply.ack.name for reply in replies if reply.HasField("ack")] != [FIRST, AGAIN]:
            replies.append(await coming.get())
    assert not [reply for reply in replies if reply.HasField("resume")]
    await check_linked(a, links=1)


def begin(transfer: int, file: FileEntry) -> bytes:
    message = peer_pb2.PushBegin(
        transfer=transfer, file=file_to_pb(file), epoch=epoch_to_pb(Epoch(1, 1)), ask_offset=bool(file.same_as)
    )
    return packed(peer_pb2.PushFrame(begin=message))


async def test_who_catches_up_fetches_the_bytes_once(cluster: Cluster) -> None:
    (a,) = await cluster.start("a")
    async with a.attach(replicas=0) as client:
        await client.add(STORE, FIRST, CONTENT)
        await commit(client, 1, FIRST)
        await add_again(client, AGAIN)
        await commit(client, 2, AGAIN)
    (b,) = await cluster.start("b")
    cluster.manager.set_group(STORE.group, "a", "b", whole="a")
    await stored(cluster, "b", 4)
    await check_linked(b, links=1)


async def test_a_file_comes_whole_where_its_first_name_has_gone(cluster: Cluster) -> None:
    a, b = await cluster.start("a", "b")
    async with a.attach() as client:
        await whole_before(cluster, client, "b")
        await client.add(STORE, FIRST, CONTENT)
        await commit(client, 2, FIRST)
        await stored(cluster, "b", 3)
        path_of(b, FIRST).unlink()
        await add_again(client, AGAIN)
        await commit(client, 3, AGAIN)
    await stored(cluster, "b", 5)
    got = await statistics(b)
    assert (got.linked_bytes, got.replicated_bytes_in > 2 * SIZE) == (0, True)
    assert path_of(b, AGAIN).read_bytes() == CONTENT


# ---------------------------------------------------------------- damaged


async def both_at(cluster: Cluster) -> Process:
    """A worker that has been sent both names."""
    a, b = await cluster.start("a", "b")
    async with a.attach() as client:
        await whole_before(cluster, client, "b")
        await client.add(STORE, FIRST, CONTENT)
        await add_again(client, AGAIN)
        await commit(client, 2, FIRST)
        await commit(client, 3, AGAIN)
    await stored(cluster, "b", 5)
    return b


async def scrub(process: Process) -> int:
    """Until what it has found is repaired; the errors."""
    number = (await start_scrub(process)).number
    return (
        await until_scrub(process, lambda s: s.number == number and not s.running and s.errors == s.repaired)
    ).errors


async def test_damage_of_one_is_damage_of_all_its_links(cluster: Cluster) -> None:
    """Neither is repaired from the other."""
    b = await both_at(cluster)
    flip_a_bit(path_of(b, AGAIN))
    assert await scrub(b) > 0
    async with asyncio.timeout(20):
        for name in (FIRST, AGAIN):
            while not path_of(b, name).exists():  # noqa: ASYNC110
                await asyncio.sleep(0.02)
            assert path_of(b, name).read_bytes() == CONTENT


async def test_a_lost_name_comes_back_as_a_link(cluster: Cluster) -> None:
    b = await both_at(cluster)
    path_of(b, FIRST).unlink()
    assert await scrub(b) == 1
    await check_linked(b, links=2)
