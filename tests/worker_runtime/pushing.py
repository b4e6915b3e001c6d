"""A push stream as another worker opens it, frame by frame."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from rhino_core.errors import RhinoError, UnavailableError
from rhino_core.ids import GroupId
from rhino_core.rpc.channel import aio_channel, call
from rhino_core.rpc.convert import worker_to_pb
from rhino_pb import peer_pb2, peer_pb2_grpc
from tests.worker_runtime.cluster import Cluster
from tests.worker_runtime.scenario import worker
from worker_runtime.push.connection import Connection
from worker_runtime.push.core.framing import Decoder, packed
from worker_runtime.push.sockets import connect


def data_frame(offset: int, data: bytes, transfer: int = 1) -> bytes:
    return packed(peer_pb2.PushFrame(data=peer_pb2.PushData(transfer=transfer, offset=offset)), len(data)) + data


def collect(connection: Connection) -> asyncio.Queue[peer_pb2.PushReply]:
    """The queue of the replies that arrive."""
    replies: asyncio.Queue[peer_pb2.PushReply] = asyncio.Queue()
    decoder = Decoder(peer_pb2.PushReply, "reply")

    def readable() -> None:
        try:
            decoder.feed(connection.read())
            while (found := decoder.message()) is not None:
                replies.put_nowait(found[0])
        except BlockingIOError:
            return
        except (EOFError, OSError, RhinoError) as error:
            connection.lose(error)

    connection.watch(readable)
    return replies


@contextlib.asynccontextmanager
async def stream(
    address: str, lane: peer_pb2.Lane.ValueType = peer_pb2.LANE_COMMIT, sender: str = "x"
) -> AsyncIterator[tuple[Connection, asyncio.Queue[peer_pb2.PushReply]]]:
    """With the queue of its replies. The manager has to have named the sender."""
    request = peer_pb2.OpenPushRequest(sender=worker_to_pb(worker(sender)), lane=lane)
    async with aio_channel(address) as channel:
        stub = peer_pb2_grpc.PeerStub(channel)
        ends_at = asyncio.get_running_loop().time() + 5.0
        while True:  # the manager's word on the sender may still be on its way
            try:
                reply = await call("open a stream", lambda: stub.OpenPush(request, timeout=10))
                break
            except UnavailableError:
                if asyncio.get_running_loop().time() > ends_at:
                    raise
            await asyncio.sleep(0.05)
    connection = Connection(await connect("127.0.0.1", reply.port, reply.token))
    try:
        yield connection, collect(connection)
    finally:
        connection.close()


async def adopted(cluster: Cluster, group: GroupId, counter: int = 1, member: str = "a") -> None:
    """The sidecar has adopted the group, whose only member it is, under this epoch: files of it are acknowledged."""
    for _ in range(counter):
        cluster.manager.set_group(group, member)

    def seen() -> bool:
        report = cluster.manager.reports.get((member, group))
        return report is not None and report.epoch.counter == counter

    await cluster.manager.until(seen)
