"""A stream ends although the machine does not answer any more: a sidecar that stops closes the machine first."""

from __future__ import annotations

import asyncio
import socket
from types import SimpleNamespace
from typing import cast

import pytest
from crc32c import crc32c

from rhino_core.ids import Epoch, FileEntry, Lane, StoreId
from rhino_core.rpc.convert import epoch_to_pb, file_to_pb
from rhino_pb import peer_pb2
from tests.worker_runtime.pushing import data_frame
from worker_runtime.protocol.credit import GrantPool
from worker_runtime.push.connection import Connection
from worker_runtime.push.core.framing import packed
from worker_runtime.push.inbound_stream import InboundStream
from worker_runtime.push.receiver import Receiver
from worker_runtime.replication import Replication
from worker_runtime.statistics import Statistics

CONTENT = b"changes"
ENTRY = FileEntry(StoreId("job", 0, 3, "default"), "1_id.changelog", len(CONTENT), crc32c(CONTENT))


def small_file() -> bytes:
    message = peer_pb2.PushBegin(transfer=1, file=file_to_pb(ENTRY), epoch=epoch_to_pb(Epoch(1, 1)))
    return packed(peer_pb2.PushFrame(begin=message)) + data_frame(0, CONTENT)


@pytest.mark.timeout(30)
async def test_a_stream_with_an_unanswered_question_ends_when_it_is_cancelled() -> None:
    asked = asyncio.Event()
    store = SimpleNamespace(incoming=None)
    replication = cast(Replication, SimpleNamespace(post=lambda event: asked.set(), store=store))
    grants = GrantPool(limit_bytes=1 << 20, window_bytes=1 << 16)
    receiver = Receiver(replication, Statistics(), grants)
    sender, ours = socket.socketpair()
    with sender:
        serving = asyncio.create_task(receiver.serve(Connection(ours), "b", Lane.COMMIT))
        sender.sendall(small_file())
        async with asyncio.timeout(10):
            await asked.wait()
            serving.cancel()
            await asyncio.wait({serving})
    assert serving.cancelled()
    assert grants.granted_bytes == 0


async def test_a_file_that_comes_after_the_end_is_not_waited_for() -> None:
    replication = cast(Replication, SimpleNamespace(post=lambda event: None))
    receiver = Receiver(replication, Statistics(), GrantPool(limit_bytes=1 << 20, window_bytes=1 << 16))
    stream = cast(InboundStream, SimpleNamespace(upstream="b", ended=True, undecided=set()))
    file = SimpleNamespace(number=None, entry=ENTRY, epoch=Epoch(1, 1), chain=())
    with pytest.raises(asyncio.CancelledError):
        async with asyncio.timeout(10):
            await receiver.decision(stream, file)  # type: ignore[arg-type]
    assert not stream.undecided
