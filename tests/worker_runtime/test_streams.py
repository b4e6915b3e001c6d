"""Queues of offers, and what the receiver says to a sender that breaks the protocol."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import grpc
import pytest

from rhino.ids import Epoch, FileEntry, GroupId, Lane, StoreId
from rhino.rpc.channel import aio_channel
from rhino.rpc.convert import epoch_to_pb, file_to_pb, worker_to_pb
from rhino_pb import peer_pb2, peer_pb2_grpc
from tests.worker_runtime.cluster import Cluster
from tests.worker_runtime.scenario import worker
from tests.worker_runtime.test_sidecar import cluster
from worker_runtime.core import events as ev
from worker_runtime.rpc.offers import OfferQueue

__all__ = ["cluster"]
Frames = list[peer_pb2.PushFrame]


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


HELLO = peer_pb2.PushFrame(hello=peer_pb2.PushHello(sender=worker_to_pb(worker("x")), lane=peer_pb2.LANE_COMMIT))
ENTRY = FileEntry(StoreId("job", 0, 0, "default"), "1_id1.changelog", 10, 0)
BEGIN = peer_pb2.PushFrame(begin=peer_pb2.PushBegin(transfer=1, file=file_to_pb(ENTRY), epoch=epoch_to_pb(Epoch(1, 1))))


def data(offset: int, size: int, transfer: int = 1) -> peer_pb2.PushFrame:
    return peer_pb2.PushFrame(data=peer_pb2.PushData(transfer=transfer, offset=offset, data=b"x" * size))


async def push(address: str, frames: Frames) -> list[peer_pb2.PushReply]:
    """Sends the frames and closes; all replies."""

    async def requests() -> AsyncIterator[peer_pb2.PushFrame]:
        for frame in frames:
            yield frame

    async with aio_channel(address) as channel:
        return [reply async for reply in peer_pb2_grpc.PeerStub(channel).Replicate(requests(), timeout=10)]


async def test_a_sender_that_breaks_the_protocol_ends_its_stream_only(cluster: Cluster) -> None:
    (a,) = await cluster.start("a", window_bytes=4096, chunk_bytes=4096, memory_limit_bytes=8192)
    assert a.worker is not None
    address = a.worker.peer_address
    for frames in (
        [BEGIN],  # no Hello
        [HELLO, HELLO],
        [HELLO, data(0, 5)],  # nothing has begun
        [HELLO, BEGIN, data(5, 5)],  # a gap
        [HELLO, BEGIN, data(0, 11)],  # more than announced
        [HELLO, BEGIN, data(0, 4097)],  # more than granted
    ):
        with pytest.raises(grpc.aio.AioRpcError) as broken:
            await push(address, frames)
        assert broken.value.code() is grpc.StatusCode.INTERNAL
    assert not list(a.settings.data_dir.joinpath("tmp").iterdir())


async def test_wrong_bytes_are_refused_and_their_credit_returns(cluster: Cluster) -> None:
    (a,) = await cluster.start("a", window_bytes=4096, chunk_bytes=4096, memory_limit_bytes=8192)
    assert a.worker is not None
    large = peer_pb2.PushFrame()
    large.CopyFrom(BEGIN)
    large.begin.file.size_bytes = 2000
    async with aio_channel(a.worker.peer_address) as channel, asyncio.timeout(10):
        call = peer_pb2_grpc.PeerStub(channel).Replicate()  # type: ignore[call-arg]  # frames are written one by one
        for frame in (HELLO, large, data(0, 900), data(900, 1100)):
            await call.write(frame)
        replies: list[peer_pb2.PushReply] = []
        while [reply.WhichOneof("reply") for reply in replies].count("refusal") < 1 or _credit(replies) < 2000:
            reply = await call.read()
            assert isinstance(reply, peer_pb2.PushReply)
            replies.append(reply)
        call.cancel()
    assert replies[0].WhichOneof("reply") == "welcome"
    assert _credit(replies) == 2000
    (refusal,) = [reply.refusal for reply in replies if reply.WhichOneof("reply") == "refusal"]
    assert refusal.reason == peer_pb2.REFUSAL_REASON_CHECKSUM


def _credit(replies: list[peer_pb2.PushReply]) -> int:
    return sum(reply.credit.bytes for reply in replies)
