"""Queues of offers, and what the receiver says to a sender that breaks the protocol."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from dataclasses import replace

import pytest
from crc32c import crc32c

from rhino_core.errors import UnavailableError
from rhino_core.ids import Epoch, FileEntry, GroupId, Lane, StoreId, Version
from rhino_core.rpc.channel import aio_channel
from rhino_core.rpc.convert import epoch_to_pb, file_to_pb, worker_to_pb
from rhino_pb import peer_pb2, peer_pb2_grpc
from tests.worker_runtime.cluster import Cluster, changelog_bytes
from tests.worker_runtime.pushing import adopted, collect, data_frame, stream
from tests.worker_runtime.scenario import worker
from worker_runtime.protocol import events as ev
from worker_runtime.push.connection import Connection
from worker_runtime.push.core.framing import packed
from worker_runtime.push.core.offers import OfferQueue
from worker_runtime.push.core.receiver import FILES_MAX
from worker_runtime.push.sockets import connect


def offer(partition: int, number: int, epoch: int = 1) -> ev.OfferFile:
    store = StoreId("job", 0, partition, "default")
    entry = FileEntry(store, f"SSTs/{number:06d}-u.sst", 10, 1)
    return ev.OfferFile(worker("b"), entry, Epoch(1, epoch), (), Lane.BULK)


def test_groups_take_turns() -> None:
    queue = OfferQueue()
    for number in range(3):
        queue.put(offer(0, number))
    queue.put(offer(1, 0))
    order = [queue.pop(set()) for _ in range(4)]
    assert order == [offer(0, 0), offer(1, 0), offer(0, 1), offer(0, 2)]
    assert queue.pop(set()) is None


def test_groups_that_are_served_are_left_out_and_newer_offers_replace_older_ones() -> None:
    queue = OfferQueue()
    queue.put(offer(0, 0))
    assert queue.pop({GroupId("job", 0, 0)}) is None
    queue.put(offer(0, 0, epoch=2))
    assert queue.pop(set()) == offer(0, 0, epoch=2)
    queue.put(offer(0, 1))
    queue.discard((offer(0, 1).entry.store, offer(0, 1).entry.name))
    assert queue.pop(set()) is None


ENTRY = FileEntry(StoreId("job", 0, 0, "default"), "1_id1.changelog", 10, 0)


LARGE = packed(
    peer_pb2.PushFrame(
        begin=peer_pb2.PushBegin(
            transfer=1, file=file_to_pb(replace(ENTRY, size_bytes=300_000)), epoch=epoch_to_pb(Epoch(1, 1))
        )
    )
)


EPOCH = Epoch(1, 1)


def begin(transfer: int, epoch: Epoch = EPOCH) -> bytes:
    return packed(
        peer_pb2.PushFrame(
            begin=peer_pb2.PushBegin(transfer=transfer, file=file_to_pb(ENTRY), epoch=epoch_to_pb(epoch))
        )
    )


BEGIN = begin(1)


def data(offset: int, size: int, transfer: int = 1) -> bytes:
    return data_frame(offset, b"x" * size, transfer)


async def test_a_sender_that_breaks_the_protocol_ends_its_stream_only(cluster: Cluster) -> None:
    cluster.manager.introduce(worker("x"))
    (a,) = await cluster.start("a", window_bytes=4096, chunk_bytes=4096, memory_limit_bytes=8192)
    assert a.worker is not None
    for frame, complaint in (
        (data(0, 5), "has not begun"),
        (BEGIN + data(5, 5), "5 bytes at 5, expected 0"),  # a gap
        (BEGIN + data(0, 11), "11 bytes at 0"),  # more than announced
        (LARGE + data(0, 4097), "credit of 4096"),
        (BEGIN[:8] + b"\xff" * (len(BEGIN) - 8), "not a frame"),
        (b"".join(begin(number) for number in range(FILES_MAX + 1)), "transfers at the same time"),
        (struct.pack("<II", 2**31, 0), "2147483648 bytes"),
        (packed(peer_pb2.PushFrame()), "unexpected frame None"),
    ):
        async with stream(a.worker.peer_address) as (wire, replies), asyncio.timeout(10):
            wire.post(frame)
            assert (await replies.get()).WhichOneof("reply") == "welcome"
            assert complaint in (await replies.get()).broken.message
            with pytest.raises(UnavailableError):
                await wire.lost
    assert not list(a.settings.data_dir.joinpath("tmp").iterdir())


async def test_a_connection_needs_a_token_that_was_not_used_yet(cluster: Cluster) -> None:
    cluster.manager.introduce(worker("x"))
    (a,) = await cluster.start("a")
    assert a.worker is not None
    async with aio_channel(a.worker.peer_address) as channel:
        request = peer_pb2.OpenPushRequest(sender=worker_to_pb(worker("x")), lane=peer_pb2.LANE_BULK)
        reply = await peer_pb2_grpc.PeerStub(channel).OpenPush(request, timeout=10)
    good = Connection(await connect("127.0.0.1", reply.port, reply.token))
    replies = collect(good)
    async with asyncio.timeout(10):
        assert (await replies.get()).WhichOneof("reply") == "welcome"
        for token in (reply.token, b"x" * len(reply.token)):
            bad = Connection(await connect("127.0.0.1", reply.port, token))
            refused = collect(bad)
            with pytest.raises(UnavailableError, match="closed the stream"):
                await bad.lost
            bad.close()
            assert refused.empty()
    assert replies.empty()
    assert not good.lost.done()
    good.close()


async def test_files_that_the_loop_reads_and_those_that_a_thread_reads_take_turns(cluster: Cluster) -> None:
    cluster.manager.introduce(worker("x"))
    (a,) = await cluster.start("a")
    await adopted(cluster, ENTRY.store.group)
    assert a.worker is not None
    sizes = [10, 2_000_000, 20, 3000, 30, 600_000, 40]
    steps = {3000: 1700, 600_000: 70_000}  # these come in pieces
    store = ENTRY.store
    async with stream(a.worker.peer_address) as (wire, replies), asyncio.timeout(20):
        for number, size in enumerate(sizes, 1):
            content = bytes([number]) * size
            entry = FileEntry(store, f"{number}_id.changelog", size, crc32c(content))
            start = peer_pb2.PushBegin(transfer=number, file=file_to_pb(entry), epoch=epoch_to_pb(EPOCH))
            wire.post(packed(peer_pb2.PushFrame(begin=start)))
            step = steps.get(size, size)
            for offset in range(0, size, step):
                wire.post(data_frame(offset, content[offset : offset + step], number))
        acked: set[str] = set()
        while len(acked) < len(sizes):
            if (reply := await replies.get()).HasField("ack"):
                acked.add(reply.ack.name)
    async with a.attach() as client:
        for number, size in enumerate(sizes, 1):
            assert client.path(store, f"{number}_id.changelog").read_bytes() == bytes([number]) * size


async def test_wrong_bytes_are_refused_and_their_credit_returns(cluster: Cluster) -> None:
    cluster.manager.introduce(worker("x"))
    (a,) = await cluster.start("a", window_bytes=4096, chunk_bytes=4096, memory_limit_bytes=8192)
    assert a.worker is not None
    await adopted(cluster, ENTRY.store.group, 1)
    for parts in ((3000,), (1400, 1600)):  # in one piece, and as large files come
        async with stream(a.worker.peer_address) as (wire, replies), asyncio.timeout(10):
            begin = peer_pb2.PushBegin(transfer=1, file=file_to_pb(ENTRY), epoch=epoch_to_pb(Epoch(1, 1)))
            begin.file.size_bytes = 3000
            wire.post(packed(peer_pb2.PushFrame(begin=begin)))
            for number, size in enumerate(parts):
                wire.post(data(sum(parts[:number]), size))
            got: list[peer_pb2.PushReply] = []
            while [reply.WhichOneof("reply") for reply in got].count("refusal") < 1 or _credit(got) < 3000:
                got.append(await replies.get())
        assert got[0].WhichOneof("reply") == "welcome"
        assert _credit(got) == 3000
        (refusal,) = [reply.refusal for reply in got if reply.WhichOneof("reply") == "refusal"]
        assert refusal.reason == peer_pb2.REFUSAL_REASON_CHECKSUM
    assert not list(a.settings.data_dir.joinpath("tmp").iterdir())


async def test_transfers_that_were_given_up_do_not_add_up(cluster: Cluster) -> None:
    """Each is refused, as its epoch is old, and so never sent to its end."""
    cluster.manager.introduce(worker("x"))
    (a,) = await cluster.start("a", window_bytes=4 << 20, chunk_bytes=4096, memory_limit_bytes=8 << 20)
    assert a.worker is not None
    await adopted(cluster, ENTRY.store.group, 2)
    file = file_to_pb(replace(ENTRY, size_bytes=300_000))
    numbers = range(2, 3 * FILES_MAX)
    async with stream(a.worker.peer_address) as (wire, replies), asyncio.timeout(20):
        wire.post(begin(1, epoch=Epoch(1, 2)) + data(0, 10))
        for number in numbers:
            stale = peer_pb2.PushBegin(transfer=number, file=file, epoch=epoch_to_pb(Epoch(1, 1)))
            wire.post(packed(peer_pb2.PushFrame(begin=stale)), data(0, 100, number))
        refused = 0
        while refused < len(numbers) + 1:  # and the first one, of wrong bytes
            reply = await replies.get()
            assert not reply.HasField("broken"), reply
            refused += reply.HasField("refusal")


async def test_a_stream_that_ends_in_a_file_leaves_nothing_and_a_newer_one_ends_the_older(cluster: Cluster) -> None:
    cluster.manager.introduce(worker("x"))
    (a,) = await cluster.start("a", window_bytes=4096, chunk_bytes=4096, memory_limit_bytes=32768)
    assert a.worker is not None
    await adopted(cluster, ENTRY.store.group, 1)
    tmp = a.settings.data_dir / "tmp"
    async with stream(a.worker.peer_address) as (older, _), asyncio.timeout(10):
        older.post(LARGE + data(0, 3000))
        while not list(tmp.iterdir()):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        async with stream(a.worker.peer_address) as (newer, _):
            with pytest.raises(UnavailableError):
                await older.lost
            while list(tmp.iterdir()):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            newer.post(LARGE + data(0, 3000))
            while not list(tmp.iterdir()):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        while list(tmp.iterdir()):  # noqa: ASYNC110
            await asyncio.sleep(0.01)


def _credit(replies: list[peer_pb2.PushReply]) -> int:
    return sum(reply.credit.bytes for reply in replies)


async def test_an_idle_link_gives_its_credit_back_and_gets_it_again(cluster: Cluster) -> None:
    window, chunk = 1 << 20, 1 << 16
    a, b = await cluster.start("a", "b", window_bytes=window, chunk_bytes=chunk, memory_limit_bytes=4 * window)
    store = StoreId("job", 0, 3, "default")
    async with a.attach() as client, b.attach() as at_b:

        async def granted(condition: Callable[[int], bool]) -> None:
            async with asyncio.timeout(20):
                while not condition((await at_b.describe()).granted_bytes):  # noqa: ASYNC110  there is no notification
                    await asyncio.sleep(0.05)

        await client.add(store, "SSTs/000001-x.sst", changelog_bytes(1, 5 * window))
        await client.commit(store, Version(1, "x"), changelog_bytes(1), [])
        await granted(lambda size: size == 2 * chunk)  # both lanes
        await client.add(store, "SSTs/000002-x.sst", changelog_bytes(2, 5 * window))
        await granted(lambda size: size > window)
        await client.commit(store, Version(2, "x"), changelog_bytes(2), [Version(1, "x")])
