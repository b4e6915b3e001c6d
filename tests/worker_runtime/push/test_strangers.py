"""A process that is no worker, or that pretends to be another one, at the ports of a sidecar."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

import pytest

from rhino_core.errors import UnavailableError
from rhino_core.ids import Epoch, FileEntry, StoreId, Version
from rhino_core.rpc.channel import aio_channel, call
from rhino_core.rpc.convert import epoch_to_pb, file_to_pb, worker_to_pb
from rhino_pb import peer_pb2, peer_pb2_grpc
from tests.worker_runtime import cluster as cluster_module
from tests.worker_runtime.cluster import Cluster, Process, changelog_bytes
from tests.worker_runtime.pushing import adopted, stream
from tests.worker_runtime.scenario import worker
from worker_runtime.push.core.framing import packed
from worker_runtime.push.opening import TOKENS_MAX

STORE = StoreId("job", 0, 3, "default")
LANES = (peer_pb2.LANE_COMMIT, peer_pb2.LANE_BULK)


async def open_push(process: Process, sender: str, incarnation: int = 1) -> peer_pb2.OpenPushReply:
    assert process.worker is not None
    request = peer_pb2.OpenPushRequest(sender=worker_to_pb(worker(sender, incarnation)), lane=peer_pb2.LANE_COMMIT)
    async with aio_channel(process.worker.peer_address) as channel:
        stub = peer_pb2_grpc.PeerStub(channel)
        return await call("open", lambda: stub.OpenPush(request, timeout=10))


def log_of(process: Process) -> str:
    return Path(process.settings.data_dir.parent / "log").read_text()


async def test_only_workers_that_the_manager_has_named_get_a_stream(cluster: Cluster) -> None:
    (a,) = await cluster.start("a")
    with pytest.raises(UnavailableError, match="'x' is not known here"):
        await open_push(a, "x")
    cluster.manager.introduce(worker("x"))
    async with asyncio.timeout(10):
        while True:
            with contextlib.suppress(UnavailableError):
                await open_push(a, "x")
                break
    with pytest.raises(UnavailableError, match="incarnation 'x/2' is not known here, but one with 'x/1'"):
        await open_push(a, "x", incarnation=2)


async def test_tokens_that_are_not_shown_are_few(cluster: Cluster) -> None:
    cluster.manager.introduce(worker("x"))
    (a,) = await cluster.start("a")
    for _ in range(TOKENS_MAX):
        await open_push(a, "x")
    with pytest.raises(UnavailableError, match="tokens have not been shown yet; try again"):
        await open_push(a, "x")


async def test_a_file_names_no_address_to_connect_to(cluster: Cluster) -> None:
    """Neither that of a stranger nor another one of a worker."""
    cluster.manager.introduce(worker("x"))
    a, b = await cluster.start("a", "b")
    assert a.worker is not None
    assert b.worker is not None
    calls: list[str] = []

    async def called(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        calls.append(str(writer.get_extra_info("peername")))
        writer.close()

    trap = await asyncio.start_server(called, "127.0.0.1", 0)
    address = f"127.0.0.1:{trap.sockets[0].getsockname()[1]}"
    await adopted(cluster, STORE.group)
    epoch = cluster.manager.set_group(STORE.group, "a", "b").epoch
    async with stream(a.worker.peer_address) as (wire, replies), asyncio.timeout(20):
        for number, name in enumerate(("stranger", "b"), 1):
            entry = FileEntry(STORE, f"{number}_id.changelog", 0, 0)
            begin = peer_pb2.PushBegin(transfer=number, file=file_to_pb(entry), epoch=epoch_to_pb(epoch))
            begin.chain.add(worker_id=name, incarnation="i", host="h", peer_address=address)
            wire.post(packed(peer_pb2.PushFrame(begin=begin)))
        while (await replies.get()).WhichOneof("reply") != "ack":
            pass
        at_b = b.settings.data_dir / "store" / f"{STORE}/2_id.changelog"
        while not at_b.exists():  # noqa: ASYNC110  the address of b according to the manager
            await asyncio.sleep(0.05)
    assert not calls
    assert "no link to a worker that the manager has not named" in log_of(a)
    trap.close()


async def test_a_file_of_an_invented_job_makes_no_group(cluster: Cluster) -> None:
    cluster.manager.introduce(worker("x"))
    (a,) = await cluster.start("a")
    assert a.worker is not None
    invented = StoreId("invented", 0, 0, "default")
    file = file_to_pb(FileEntry(invented, "1_id.changelog", 0, 0))
    begin = peer_pb2.PushBegin(transfer=1, file=file, epoch=epoch_to_pb(Epoch(1, 1)))
    async with stream(a.worker.peer_address) as (wire, _):
        wire.post(packed(peer_pb2.PushFrame(begin=begin)))
        await cluster.manager.until(lambda: cluster.manager.refused_groups > 0)
    assert invented.group not in cluster.manager.groups
    async with a.attach(replicas=0) as client:  # its first executor makes it
        await client.commit(invented, Version(1, "x"), changelog_bytes(1), [])


async def test_streams_that_send_nothing_keep_no_credit_from_others(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    soon = "from worker_runtime.push import receiver\nreceiver.TAKE_BACK_S = 1.0\n"
    monkeypatch.setattr(cluster_module, "MAIN", soon + cluster_module.MAIN)
    names = [chr(number) for number in range(ord("e"), ord("z") + 1)]
    for name in names:
        cluster.manager.introduce(worker(name))
    (a,) = await cluster.start("a", window_bytes=1 << 20, memory_limit_bytes=8 << 20)
    assert a.worker is not None
    async with contextlib.AsyncExitStack() as strangers:
        for name in names:
            for lane in LANES:
                await strangers.enter_async_context(stream(a.worker.peer_address, lane, name))
        (b,) = await cluster.start("b")
        async with b.attach(commit_timeout_s=40) as client, asyncio.timeout(60):
            await client.add(STORE, "SSTs/000001-x.sst", changelog_bytes(1, 3 << 20))
            await client.commit(STORE, Version(1, "x"), changelog_bytes(1), [])
            stored = a.settings.data_dir / "store" / f"{STORE}/SSTs/000001-x.sst"
            while not stored.exists():  # noqa: ASYNC110  there is no notification
                await asyncio.sleep(0.05)
    assert "it sends nothing, and others wait for its credit" in log_of(a)


async def test_a_token_is_good_for_its_worker_only(cluster: Cluster) -> None:
    """A second stream of the same worker and lane ends the first; one of another lane or worker ends none."""
    cluster.manager.introduce(worker("x"))
    cluster.manager.introduce(worker("y"))
    (a,) = await cluster.start("a")
    assert a.worker is not None
    address = a.worker.peer_address
    async with stream(address, sender="x") as (first, _), stream(address, sender="y") as (other, _):
        async with stream(address, peer_pb2.LANE_BULK, "x"), stream(address, sender="x"), asyncio.timeout(10):
            with pytest.raises(UnavailableError):
                await first.lost
        assert not other.lost.done()
