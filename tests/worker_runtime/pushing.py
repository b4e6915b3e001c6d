"""A push stream as another worker opens it, frame by frame."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from rhino.rpc.channel import aio_channel
from rhino.rpc.convert import worker_to_pb
from rhino_pb import peer_pb2, peer_pb2_grpc
from tests.worker_runtime.scenario import worker
from worker_runtime.rpc.pusher import connect
from worker_runtime.rpc.wire import Wire, packed


def data_frame(offset: int, data: bytes, transfer: int = 1) -> bytes:
    return packed(peer_pb2.PushFrame(data=peer_pb2.PushData(transfer=transfer, offset=offset)), len(data)) + data


@contextlib.asynccontextmanager
async def stream(
    address: str, lane: peer_pb2.Lane.ValueType = peer_pb2.LANE_COMMIT, sender: str = "x"
) -> AsyncIterator[tuple[Wire, asyncio.Queue[peer_pb2.PushReply]]]:
    """With the queue of its replies."""
    hello = peer_pb2.PushHello(sender=worker_to_pb(worker(sender)), lane=lane)
    async with aio_channel(address) as channel:
        ticket = await peer_pb2_grpc.PeerStub(channel).OpenPush(hello, timeout=10)
    wire = Wire(await connect("127.0.0.1", ticket.port, ticket.token))
    replies: asyncio.Queue[peer_pb2.PushReply] = asyncio.Queue()
    wire.receive(replies.put_nowait)
    try:
        yield wire, replies
    finally:
        wire.close()
