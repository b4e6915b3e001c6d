"""Broken transfers of large files go on where they broke; real sidecars, their connections cut by a proxy."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest
from crc32c import crc32c

from rhino_core.errors import IntegrityError, UnavailableError
from rhino_core.ids import Epoch, FileEntry
from rhino_core.rpc.channel import aio_channel
from rhino_core.rpc.convert import epoch_to_pb, file_to_pb, store_to_pb
from rhino_core.rpc.status import error_of
from rhino_pb import peer_pb2, peer_pb2_grpc
from tests.nightly import few
from tests.worker_runtime.cluster import Client, Cluster, Process, changelog_bytes, zip_bytes
from tests.worker_runtime.proxy import Proxy
from tests.worker_runtime.pushing import adopted, data_frame, stream
from tests.worker_runtime.scenario import STORE, version, worker
from tests.worker_runtime.support.resume import statistics, stored
from worker_runtime.push.connection import Connection
from worker_runtime.push.core.framing import packed
from worker_runtime.storage.disk import partials
from worker_runtime.storage.disk.files import create
from worker_runtime.storage.disk.incoming import Incoming
from worker_runtime.storage.disk.layout import Layout
from worker_runtime.storage.disk.partials import BYTES_MIN, COUNT_MAX, Partials

MIB = 1024 * 1024
SIZE = 24 * MIB
WINDOW = MIB
CUT_AFTER = 10 * MIB
CONTENT = os.urandom(SIZE)
SST = "SSTs/000001-x.sst"
SMALL = {"window_bytes": WINDOW, "chunk_bytes": 64 * 1024, "memory_limit_bytes": 4 * WINDOW}


@pytest.fixture
async def proxy(cluster: Cluster) -> AsyncIterator[Proxy]:
    """In front of the worker that the test names (`hide`)."""
    async with Proxy() as made:
        yield made


def hide(cluster: Cluster, proxy: Proxy, name: str) -> None:
    cluster.manager.seen_as = lambda worker: proxy.hide(worker) if worker.worker_id == name else worker


async def snapshot(client: Client) -> None:
    await client.add(STORE, SST, CONTENT)
    await client.commit(STORE, version(2), zip_bytes("000001-x.sst"), [], end="zip")


async def whole_before(cluster: Cluster, client: Client) -> None:
    """A first commit, after which "b" does not catch up beside what is pushed."""
    await client.commit(STORE, version(1), changelog_bytes(1), [])
    reports, key = cluster.manager.reports, ("b", STORE.group)
    await cluster.manager.until(lambda: key in reports and reports[key].whole)


async def push_until_cut(cluster: Cluster, proxy: Proxy, client: Client) -> None:
    """Pushes a file of a snapshot until "b" has its beginning, and closes the proxy."""
    await whole_before(cluster, client)
    proxy.cut_after_bytes = CUT_AFTER
    await client.add(STORE, SST, CONTENT)
    await proxy.cut.wait()


async def check_resumed(receiver: Process, sender: Process, in_flight: int = 2 * WINDOW) -> None:
    """Everything is there, and no more was sent twice than can have been on its way when the connection was cut."""
    got, sent = await statistics(receiver), await statistics(sender)
    assert got.replicated_bytes_in < SIZE + 2 * WINDOW
    assert sent.replicated_bytes_out < SIZE + in_flight
    await check_whole(receiver, in_flight)


async def check_whole(receiver: Process, in_flight: int = 2 * WINDOW) -> None:
    """The same but for the number of bytes: a receiver that has restarted catches up beside what is pushed."""
    assert (await statistics(receiver)).resumed_bytes > CUT_AFTER - in_flight
    async with receiver.attach() as client:
        assert client.path(STORE, SST).read_bytes() == CONTENT
    assert not list(receiver.settings.data_dir.joinpath("partial").iterdir())


async def test_a_push_goes_on_where_its_connection_was_cut(cluster: Cluster, proxy: Proxy) -> None:
    hide(cluster, proxy, "b")
    (a,), (b,) = await cluster.start("a", **SMALL), await cluster.start("b", push_port=proxy.push_port, **SMALL)
    async with a.attach() as client:
        await push_until_cut(cluster, proxy, client)
        proxy.open()
        await client.commit(STORE, version(2), zip_bytes("000001-x.sst"), [], end="zip")
    await check_resumed(b, a)


async def test_a_push_goes_on_after_kill_9_of_the_receiver(cluster: Cluster, proxy: Proxy) -> None:
    hide(cluster, proxy, "b")
    (a,), (b,) = await cluster.start("a", **SMALL), await cluster.start("b", push_port=proxy.push_port, **SMALL)
    async with a.attach(commit_timeout_s=30) as client:
        await push_until_cut(cluster, proxy, client)
        await b.end()
        await b.start()
        proxy.open()
        await client.commit(STORE, version(2), zip_bytes("000001-x.sst"), [], end="zip")
    await check_whole(b)


async def test_a_damaged_beginning_costs_a_second_attempt_from_the_start(cluster: Cluster, proxy: Proxy) -> None:
    hide(cluster, proxy, "b")
    (a,), (b,) = await cluster.start("a", **SMALL), await cluster.start("b", push_port=proxy.push_port, **SMALL)
    async with a.attach(commit_timeout_s=30) as client:
        await push_until_cut(cluster, proxy, client)
        await b.end()
        (kept,) = [
            path for path in (b.settings.data_dir / "partial", b.settings.data_dir / "tmp") for path in path.iterdir()
        ]
        with kept.open("r+b") as file:
            file.write(bytes(64))
        await b.start()
        proxy.open()
        await client.commit(STORE, version(2), zip_bytes("000001-x.sst"), [], end="zip")
    got = await statistics(b)
    assert got.resumed_bytes > 0
    assert got.replicated_bytes_in > SIZE, "again from the start"
    async with b.attach() as client:
        assert client.path(STORE, SST).read_bytes() == CONTENT


async def test_a_pull_goes_on_where_its_connection_was_cut(cluster: Cluster, proxy: Proxy) -> None:
    hide(cluster, proxy, "a")
    (a,) = await cluster.start("a", **SMALL)
    async with a.attach(replicas=0) as client:
        await snapshot(client)
        await client.commit(STORE, version(3), changelog_bytes(3), [version(2)])
    proxy.cut_after_bytes = CUT_AFTER
    (b,) = await cluster.start("b", **SMALL)
    cluster.manager.set_group(STORE.group, "a", "b", whole="a")
    await proxy.cut.wait()
    proxy.open()
    await stored(cluster, "b", 3)
    await check_resumed(b, a, in_flight=8 * MIB)  # the window of HTTP/2


async def test_a_sender_that_did_not_ask_is_told_and_what_it_has_sent_already_is_thrown_away(cluster: Cluster) -> None:
    """And the stream before it, which nobody has noticed to be dead, gives up what it had."""
    cluster.manager.introduce(worker("x"))
    (a,) = await cluster.start("a", window_bytes=4 * MIB, chunk_bytes=4096, memory_limit_bytes=8 * MIB)
    await adopted(cluster, STORE.group)
    assert a.worker is not None
    content = CONTENT[: 3 * MIB]
    file = FileEntry(STORE, SST, len(content), crc32c(content))
    start = peer_pb2.PushBegin(transfer=1, file=file_to_pb(file), epoch=epoch_to_pb(Epoch(1, 1)))
    frame = packed(peer_pb2.PushFrame(begin=start))

    def send(wire: Connection, end: int, step: int) -> None:
        wire.post(frame)
        for offset in range(0, end, step):
            wire.post(data_frame(offset, content[offset : min(offset + step, end)]))

    replies: list[peer_pb2.PushReply] = []
    address, lane = a.worker.peer_address, peer_pb2.LANE_BULK
    async with asyncio.timeout(20), stream(address, lane) as (first, _):
        send(first, 2 * MIB, 100_000)
        folder, written = a.settings.data_dir / "tmp", 0
        while written < 2 * MIB:
            written = max((path.stat().st_size for path in folder.iterdir()), default=0)
            await asyncio.sleep(0.01)
        async with stream(address, lane) as (second, coming):
            send(second, 3 * MIB, 70_000)
            while not replies or replies[-1].WhichOneof("reply") != "ack":
                replies.append(await coming.get())
            with pytest.raises(UnavailableError):
                await first.lost
    assert [r.resume.offset for r in replies if r.HasField("resume")] == [2 * MIB]
    got = await statistics(a)
    assert (got.resumed_bytes, got.replicated_bytes_in) == (2 * MIB, 5 * MIB)
    async with a.attach() as client:
        assert client.path(STORE, SST).read_bytes() == content


# ---------------------------------------------------------------- what is kept


def entry(number: int, size: int = 2 * BYTES_MIN) -> FileEntry:
    return FileEntry(STORE, f"SSTs/{number:06d}-x.sst", size, crc32c(bytes(size)))


@pytest.fixture
def kept(tmp_path: Path) -> Partials:
    layout = Layout(tmp_path)
    layout.create()
    return Partials(layout)


def begin(kept: Partials, number: int, size: int = BYTES_MIN) -> Incoming:
    incoming = Incoming(path := kept.temporary(entry(number)), create(path))
    incoming.write([bytes(size)])
    return incoming


def test_what_was_kept_is_taken_once_and_has_the_right_checksum_at_its_end(kept: Partials) -> None:
    kept.keep(entry(1), begin(kept, 1))
    taken = kept.take(entry(1))
    assert taken is not None
    assert (kept.take(entry(1)), kept.has(entry(1))) == (None, False)
    assert taken.size_bytes == BYTES_MIN
    taken.write([bytes(BYTES_MIN)])
    assert taken.finish(entry(1).size_bytes, entry(1).crc32c).size_bytes == 2 * BYTES_MIN


@pytest.mark.parametrize("size", [0, BYTES_MIN - 1, 2 * BYTES_MIN])
def test_too_little_and_all_of_it_are_not_worth_keeping(kept: Partials, size: int, tmp_path: Path) -> None:
    kept.keep(entry(1), begin(kept, 1, size))
    assert not kept.has(entry(1))
    assert not [path for folder in ("tmp", "partial") for path in (tmp_path / folder).iterdir()]


def test_another_file_of_the_same_name_does_not_go_on_with_it(kept: Partials) -> None:
    kept.keep(entry(1), begin(kept, 1))
    assert kept.take(FileEntry(STORE, entry(1).name, entry(1).size_bytes, 7)) is None


def test_number_and_age_are_bounded(kept: Partials, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(COUNT_MAX + 2):
        kept.keep(entry(number), begin(kept, number))
    assert len(kept) == COUNT_MAX == len(list((tmp_path / "partial").iterdir()))
    assert not kept.has(entry(0))
    assert kept.has(entry(COUNT_MAX + 1))
    now = time.monotonic() + partials.AGE_S_MAX + 1
    monkeypatch.setattr(time, "monotonic", lambda: now)
    kept.trim()
    assert len(kept) == 0
    assert not list((tmp_path / "partial").iterdir())


@pytest.mark.parametrize("same_boot", [True, False])
def test_a_killed_process_leaves_them_but_not_a_reboot(kept: Partials, tmp_path: Path, same_boot: bool) -> None:
    kept.keep(entry(1), begin(kept, 1))
    begin(kept, 2)  # under way when the process was killed
    begin(kept, 3, size=10)
    again = Partials(Layout(tmp_path))
    again.recover(same_boot=same_boot)
    assert [again.has(entry(number)) for number in (1, 2, 3)] == [same_boot, same_boot, False]


async def test_a_file_that_is_damaged_at_its_sender_is_dropped_there_and_does_not_arrive(cluster: Cluster) -> None:
    a, b = await cluster.start("a", "b", **SMALL)
    async with a.attach() as client:
        await whole_before(cluster, client)
        await b.end()
        await client.add(STORE, SST, CONTENT)
        await stored(cluster, "a", files=2)
        path = client.path(STORE, SST)
        damage(path)
        await b.start()
        await stored(cluster, "a", files=1)
    assert not path.exists()
    async with b.attach() as client:
        assert not client.path(STORE, SST).exists()


def damage(path: Path) -> None:
    """At its beginning, so that nobody sees it by the time."""
    status = path.stat()
    with path.open("r+b") as file:
        file.write(bytes(64))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


async def test_what_is_left_of_a_push_does_not_leave_when_its_beginning_is_damaged(
    cluster: Cluster, proxy: Proxy
) -> None:
    """The receiver has the beginning as it was."""
    hide(cluster, proxy, "b")
    (a,), (b,) = await cluster.start("a", **SMALL), await cluster.start("b", push_port=proxy.push_port, **SMALL)
    async with a.attach() as client:
        await push_until_cut(cluster, proxy, client)
        await stored(cluster, "a", files=2)
        path = client.path(STORE, SST)
        damage(path)
        proxy.open()
        await stored(cluster, "a", files=1)
    assert not path.exists()
    got = await statistics(b)
    assert got.resumed_bytes > 0
    assert got.replicated_bytes_in < SIZE, "the last part did not leave"
    async with b.attach() as client:
        assert not client.path(STORE, SST).exists()


async def fetched(process: Process, offset: int) -> bytes:
    """Fetches the rest of the file from the given offset on. Raises RhinoError."""
    assert process.worker is not None
    request = peer_pb2.FetchRequest(store=store_to_pb(STORE), name=SST, offset=offset)
    left, position = bytearray(), offset
    async with aio_channel(process.worker.peer_address) as channel:
        try:
            async for chunk in peer_pb2_grpc.PeerStub(channel).Fetch(request, timeout=30):
                assert chunk.offset == position
                left += chunk.data
                position += len(chunk.data)
        except grpc.RpcError as error:
            raise error_of(error, f"fetch after {len(left)} bytes") from error
    return bytes(left)


@pytest.mark.parametrize("offset", few([0, CUT_AFTER + 1, SIZE - 1, SIZE, 1, 64 * 1024], 4))
async def test_what_is_left_of_a_pull_is_checked_before_it_leaves(cluster: Cluster, offset: int) -> None:
    (a,) = await cluster.start("a", **SMALL)
    async with a.attach(replicas=0) as client:
        await client.add(STORE, SST, CONTENT)
        path = client.path(STORE, SST)
    assert await fetched(a, offset) == CONTENT[offset:]
    damage(path)
    with pytest.raises(IntegrityError, match="do not match their checksum") as raised:
        await fetched(a, offset)
    sent = int(str(raised.value).split("fetch after ")[1].split()[0])
    assert sent < max(1, SIZE - offset), "the last piece did not leave"
    assert not path.exists()
