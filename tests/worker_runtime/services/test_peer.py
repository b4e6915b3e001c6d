"""Files that others fetch: so many at the same time, and no memory for those that nobody reads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import grpc
import psutil
import pytest

from rhino_core.errors import UnavailableError
from rhino_core.ids import FileEntry, GroupId, StoreId
from rhino_core.rpc.channel import aio_channel
from rhino_core.rpc.convert import store_to_pb
from rhino_pb import peer_pb2, peer_pb2_grpc
from tests.worker_runtime.cluster import Cluster, changelog_bytes
from worker_runtime.fetch import serving
from worker_runtime.fetch.serving import AT_ONCE_PER_HOST, Reader, Turnstile, host_of, is_turn
from worker_runtime.services import peer

STORE = StoreId("job", 0, 3, "default")
NAME = "SSTs/000001-x.sst"
MB = 1_000_000


async def test_turns_go_by_the_order_of_coming_and_by_host() -> None:
    turnstile = Turnstile(at_once=3, per_host=2, waiting_max=3)
    first = [turnstile.enter("a") for _ in range(4)]
    other = turnstile.enter("b")
    assert [turn.done() for turn in (*first, other)] == [True, True, False, False, True]
    last = turnstile.enter("b")
    with pytest.raises(UnavailableError, match="3 files are asked for here already"):
        turnstile.enter("c")
    turnstile.leave(first[2], "a")  # it has given up
    turnstile.leave(first[0], "a")
    assert (first[3].done(), last.done()) == (True, False)
    turnstile.leave(other, "b")
    assert last.done()
    for turn, host in ((first[1], "a"), (first[3], "a"), (last, "b")):
        turnstile.leave(turn, host)
    assert turnstile.inside == 0
    assert not turnstile._inside


def test_hosts() -> None:
    peers = {"ipv4:10.0.0.1:555": "ipv4:10.0.0.1", "ipv6:%5B::1%5D:70": "ipv6:%5B::1%5D", "unix:": "unix"}
    assert {peer: host_of(peer) for peer in peers} == peers


async def test_who_waits_hears_something_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "SIGN_S", 0.01)
    turnstile = Turnstile(at_once=1)
    inside, waiting = turnstile.enter("a"), turnstile.enter("b")
    assert not await is_turn(waiting)
    turnstile.leave(inside, "a")
    assert await is_turn(waiting)


async def test_a_client_that_takes_nothing_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "STALL_S", 0.05)

    async def give(while_it_takes: Callable[[], Any], afterwards_s: float) -> None:
        reader = Reader()
        try:
            with reader.takes():
                await while_it_takes()
            await asyncio.sleep(afterwards_s)
        finally:
            reader.close()

    stalled = asyncio.create_task(give(asyncio.Event().wait, 0))
    await asyncio.wait({stalled}, timeout=10)
    assert stalled.cancelled()
    await give(lambda: asyncio.sleep(0), 3 * serving.STALL_S)  # who has taken it has all the time


async def test_a_fetch_that_is_refused_leaves_no_timer(monkeypatch: pytest.MonkeyPatch) -> None:
    async def allowed(group: GroupId) -> None:
        return

    monkeypatch.setattr(peer, "Reader", lambda: pytest.fail("it looks again every STALL_S until it is closed"))
    stored = SimpleNamespace(entry=FileEntry(STORE, NAME, 10, 1))
    replication: Any = SimpleNamespace(store=SimpleNamespace(files=SimpleNamespace(record=lambda *key: stored)))
    callers: Any = SimpleNamespace(require_user=allowed)
    unused: Any = SimpleNamespace()
    context: Any = SimpleNamespace(peer=str)
    service = peer.PeerService(replication, unused, callers, unused, unused, unused, 4)
    service._turnstile = Turnstile(waiting_max=0)
    request = peer_pb2.FetchRequest(store=store_to_pb(STORE), name=NAME)
    with pytest.raises(UnavailableError, match="are asked for here already"):
        [chunk async for chunk in service.Fetch(request, context)]


async def test_fetches_that_nobody_reads_take_little_memory_and_end(cluster: Cluster) -> None:
    (a,) = await cluster.start("a")
    assert a.worker is not None
    assert a.process is not None
    size = 32 * MB
    async with a.attach(replicas=0) as client:
        await client.add(STORE, NAME, changelog_bytes(1, 1000) * (size // 1000))
    request = peer_pb2.FetchRequest(store=store_to_pb(STORE), name=NAME)
    process = psutil.Process(a.process.pid)
    before = process.memory_info().rss
    async with aio_channel(a.worker.peer_address) as channel, asyncio.timeout(50):
        stub = peer_pb2_grpc.PeerStub(channel)
        inside: list[Any] = [stub.Fetch(request, timeout=60) for _ in range(AT_ONCE_PER_HOST)]
        for call in inside:
            assert (await call.read()).HasField("file")
            assert (await call.read()).data
        waiting: list[Any] = [stub.Fetch(request, timeout=60) for _ in range(100)]
        for call in waiting:  # all of them have begun
            assert (await call.read()).HasField("file")
        await asyncio.sleep(1.0)  # for as many chunks to be made as are going to be
        assert (process.memory_info().rss - before) / MB < 100
        assert sum(await asyncio.gather(*(_drained(call) for call in inside))) > 7 * size
        for call in waiting:
            call.cancel()
        assert await _drained(stub.Fetch(request, timeout=60)) == size


async def _drained(call: Any) -> int:
    size = 0
    while isinstance(chunk := await call.read(), peer_pb2.FetchChunk):
        size += len(chunk.data)
    return size


async def test_an_offset_behind_the_end_is_refused(cluster: Cluster) -> None:
    (a,) = await cluster.start("a")
    assert a.worker is not None
    async with a.attach(replicas=0) as client:
        await client.add(STORE, NAME, changelog_bytes(1, 1000))
    async with aio_channel(a.worker.peer_address) as channel:
        stub = peer_pb2_grpc.PeerStub(channel)
        for offset, code in ((2**64 - 1, grpc.StatusCode.INVALID_ARGUMENT), (1000, None)):
            request = peer_pb2.FetchRequest(store=store_to_pb(STORE), name=NAME, offset=offset)
            call: Any = stub.Fetch(request, timeout=20)
            if code is None:
                assert await _drained(call) == 0
            else:
                with pytest.raises(grpc.aio.AioRpcError) as refused:
                    await _drained(call)
                assert refused.value.code() is code
