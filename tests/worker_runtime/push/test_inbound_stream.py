"""Messages and files that a sender begins and does not finish: they hold little, and not for long."""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from crc32c import crc32c

from rhino_core.errors import UnavailableError
from rhino_core.ids import Epoch, FileEntry, StoreId
from rhino_core.rpc.convert import epoch_to_pb, file_to_pb
from rhino_pb import peer_pb2
from tests.worker_runtime import cluster as cluster_module
from tests.worker_runtime.cluster import Cluster
from tests.worker_runtime.pushing import adopted, data_frame, stream
from tests.worker_runtime.scenario import worker
from worker_runtime.push.core.framing import LARGE_MESSAGE_BYTES_MAX, MESSAGE_BYTES_MAX, packed
from worker_runtime.push.message_memory import MessageMemory

STORE = StoreId("job", 0, 3, "default")
LANES = (peer_pb2.LANE_COMMIT, peer_pb2.LANE_BULK)
MB = 1_000_000
MESSAGE_S, STALL_S = 3.0, 3  # of the sidecars here: less than ten seconds
IMPATIENT = f"from worker_runtime.push import inbound\ninbound.MESSAGE_S, inbound.STALL_S = {MESSAGE_S}, {STALL_S}\n"


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_module, "MAIN", IMPATIENT + cluster_module.MAIN)


def begin(entry: FileEntry, transfer: int = 1) -> bytes:
    message = peer_pb2.PushBegin(transfer=transfer, file=file_to_pb(entry), epoch=epoch_to_pb(Epoch(1, 1)))
    return packed(peer_pb2.PushFrame(begin=message))


async def complaint(replies: asyncio.Queue[peer_pb2.PushReply]) -> str:
    while not (reply := await replies.get()).HasField("broken"):
        pass
    return reply.broken.message


@pytest.mark.timeout(90)
async def test_messages_that_are_not_finished_end_their_streams_and_take_little_memory(cluster: Cluster) -> None:
    names = [chr(number) for number in range(ord("m"), ord("y"))]
    for name in names:
        cluster.manager.introduce(worker(name))
    (a,) = await cluster.start("a", window_bytes=4096, chunk_bytes=4096)  # credit for all
    assert a.worker is not None
    assert a.process is not None
    process = psutil.Process(a.process.pid)
    before = process.memory_info().rss
    started = asyncio.get_running_loop().time()
    async with contextlib.AsyncExitStack() as streams, asyncio.timeout(40):
        opened = [
            await streams.enter_async_context(stream(a.worker.peer_address, lane, name))
            for name in names
            for lane in LANES
        ]
        for wire, _ in opened:
            wire.post(struct.pack("<II", MESSAGE_BYTES_MAX, 0), b"x" * (MESSAGE_BYTES_MAX - 1))
        said = await asyncio.gather(*(complaint(replies) for _, replies in opened))
        assert {*said} == {f"a message that was not complete within {MESSAGE_S} s"}
        assert asyncio.get_running_loop().time() - started > MESSAGE_S / 2
        assert (process.memory_info().rss - before) / MB < len(opened) * 2.5


@pytest.mark.timeout(60)
async def test_a_message_that_trickles_in_is_as_bad(cluster: Cluster) -> None:
    cluster.manager.introduce(worker("x"))
    (a,) = await cluster.start("a")
    assert a.worker is not None
    address = a.worker.peer_address

    async def trickle(lane: peer_pb2.Lane.ValueType) -> None:
        async with stream(address, lane) as (wire, replies), asyncio.timeout(25):
            wire.post(struct.pack("<II", 1000, 0))
            said = asyncio.create_task(complaint(replies))
            while not said.done():
                wire.post(b"x")
                await asyncio.wait({said}, timeout=0.3)
            assert "was not complete" in said.result()

    await asyncio.gather(*map(trickle, LANES))


async def test_only_zips_and_changelogs_have_large_messages_and_one_at_a_time(cluster: Cluster) -> None:
    cluster.manager.introduce(worker("x"))
    cluster.manager.introduce(worker("y"))
    (a,) = await cluster.start("a")
    assert a.worker is not None
    await adopted(cluster, STORE.group)
    names = tuple(f"SSTs/{number:06d}-{'u' * 36}.sst" for number in range(60_000))
    entry = FileEntry(STORE, "1_id.zip", 3, crc32c(b"zip"), references=names)
    assert MESSAGE_BYTES_MAX < len(begin(entry)) < LARGE_MESSAGE_BYTES_MAX
    async with stream(a.worker.peer_address) as (wire, replies), asyncio.timeout(30):
        wire.post(begin(entry), data_frame(0, b"zip"))
        while not (reply := await replies.get()).HasField("ack"):
            assert not reply.HasField("broken"), reply
        wire.post(begin(replace(entry, name="SSTs/000002-x.sst"), 2))
        assert "bytes that announces no zip or changelog" in await complaint(replies)
    async with stream(a.worker.peer_address) as (first, coming), asyncio.timeout(30):
        assert (await coming.get()).HasField("welcome")
        first.post(struct.pack("<II", LARGE_MESSAGE_BYTES_MAX, 0))
        said = ""
        while "no room for a message" not in said:  # the first one's may still be on its way
            async with stream(a.worker.peer_address, sender="y") as (second, replies):
                second.post(begin(entry), data_frame(0, b"zip"))
                while not said and not (reply := await replies.get()).HasField("ack"):
                    said = reply.broken.message
    async with stream(a.worker.peer_address) as (wire, replies), asyncio.timeout(30):
        wire.post(struct.pack("<II", LARGE_MESSAGE_BYTES_MAX + 1, 0))
        assert f"at most {LARGE_MESSAGE_BYTES_MAX} are allowed" in await complaint(replies)


def test_message_memory() -> None:
    memory = MessageMemory(10)
    memory.reserve(6)
    with pytest.raises(UnavailableError, match="no room for a message of 5 bytes"):
        memory.reserve(5)
    memory.release(6)
    memory.reserve(10)


@pytest.mark.timeout(60)
async def test_an_announced_file_reserves_the_disk_only_while_it_comes(cluster: Cluster) -> None:
    cluster.manager.introduce(worker("x"))
    (a,) = await cluster.start("a", window_bytes=4 << 20, chunk_bytes=4096, memory_limit_bytes=32 << 20)
    assert a.worker is not None
    await adopted(cluster, STORE.group)
    size = 40 * MB
    content = bytes(size // 20)
    entry = FileEntry(STORE, "SSTs/000001-x.sst", size, crc32c(bytes(size)))
    tmp = a.settings.data_dir / "tmp"

    def taken() -> int:
        return sum(path.stat().st_blocks * 512 for path in tmp.iterdir())

    async with stream(a.worker.peer_address, peer_pb2.LANE_BULK) as (wire, replies), asyncio.timeout(50):
        wire.post(begin(entry), data_frame(0, content))
        await until(lambda: taken() >= size)
        started = asyncio.get_running_loop().time()
        await until(lambda: taken() < 3 * len(content))
        assert asyncio.get_running_loop().time() - started > STALL_S / 2
        sent, granted = len(content), 0
        while sent < size:  # and it goes on as if nothing had been
            while granted - sent < min(MB, size - sent):
                reply = await replies.get()
                assert not reply.HasField("broken"), reply
                granted += reply.welcome.credit_bytes + reply.credit.bytes
            part = min(granted, size) - sent
            wire.post(data_frame(sent, bytes(part)))
            sent += part
        while not (await replies.get()).HasField("ack"):
            pass
    stored = Path(a.settings.data_dir, "store", f"{STORE}/{entry.name}")
    assert stored.stat().st_size == size


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110  a file system sends no notification
        await asyncio.sleep(0.05)
