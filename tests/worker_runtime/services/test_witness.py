"""A real sidecar as a witness: its answers are on disk, also when it dies at once."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, cast

import grpc
import pytest

from rhino_core import failpoints
from rhino_core.errors import IntegrityError
from rhino_core.rpc import witnesses as convert
from rhino_core.rpc.channel import aio_channel
from rhino_core.rpc.parts import in_parts
from rhino_core.witnesses.acceptor import Save, Stored
from rhino_core.witnesses.messages import ORIGIN, Append, Position, Record, Snapshot
from rhino_pb import witness_pb2 as pb
from rhino_pb import witness_pb2_grpc
from tests.worker_runtime.cluster import Cluster, Process
from worker_runtime.services import witness
from worker_runtime.services.witness import WitnessService

POINTS = [name for name in failpoints.NAMES if name.startswith("store.witness.")]


class Caller:
    """A manager that calls one witness."""

    def __init__(self, stub: witness_pb2_grpc.WitnessAsyncStub, name: str) -> None:
        self._stub = stub
        self.name = name

    async def promise(self, generation: int, cluster: str = "c") -> pb.PromiseReply:
        request = pb.PromiseRequest(witness=self.name, cluster=cluster, generation=generation, candidate="m")
        return await self._stub.Promise(request, timeout=30)

    async def append(self, generation: int, prev: Position, *records: Record, snapshot: Snapshot | None = None) -> int:
        request = Append("c", generation, "m", prev, records, 0, 0.0, snapshot)
        message = convert.append_to_pb(self.name, request)
        if snapshot is None:
            reply = await self._stub.Append(message, timeout=30)
        else:
            reply = await self._stub.AppendInParts(in_parts(pb.AppendPart(request=message)), timeout=30)
        return reply.matched

    async def fetch(self, after: int, generation: int) -> pb.FetchRecordsReply:
        request = pb.FetchRecordsRequest(witness=self.name, cluster="c", after=after, generation=generation)
        return await self._stub.FetchRecords(request, timeout=30)


@asynccontextmanager
async def called(process: Process) -> AsyncIterator[Caller]:
    assert process.worker is not None
    channel = aio_channel(process.worker.peer_address)
    try:
        stub = witness_pb2_grpc.WitnessStub(channel)
        reply = await stub.Identify(pb.IdentifyRequest(), timeout=30, wait_for_ready=True)
        yield Caller(stub, reply.witness)
    finally:
        await channel.close(None)


async def test_a_witness_has_promises_and_records_after_kill_9(cluster: Cluster) -> None:
    (a,) = await cluster.start("a")
    records = [Record(5, {"k": b"v"}, ("x",)), Record(5, {"k": None})]
    async with called(a) as caller:
        assert (await caller.promise(5)).granted
        assert await caller.append(5, ORIGIN, *records) == 2
        name = caller.name
    await a.end()
    await a.start()
    async with called(a) as caller:
        assert caller.name == name
        reply = await caller.promise(6)
        assert convert.position_of(reply.last) == Position(5, 2)
        fetched = await caller.fetch(0, 6)
        assert list(map(convert.record_of, fetched.records)) == records
        assert not (await caller.promise(5)).granted


@pytest.mark.parametrize("point", POINTS)
async def test_a_witness_that_dies_while_it_writes_has_all_or_nothing(cluster: Cluster, point: str) -> None:
    (a,) = await cluster.start("a")
    await a.end()
    await a.start(failpoints=f"{point}=kill")
    async with called(a) as caller:
        with pytest.raises(grpc.aio.AioRpcError):
            await caller.append(5, ORIGIN, Record(5, {"k": b"v"}))
    assert a.process is not None
    async with asyncio.timeout(60):
        assert await a.process.wait() == -signal.SIGKILL
    await a.start()
    async with called(a) as caller:
        after = point.endswith(".after")
        reply = await caller.promise(6)
        assert reply.last.index == (1 if after else 0)


async def test_a_large_snapshot_comes_in_parts(cluster: Cluster) -> None:
    (a,) = await cluster.start("a")
    values = {f"k{number}": b"x" * 100_000 for number in range(60)}
    async with called(a) as caller:
        await caller.append(5, ORIGIN, Record(5, {"old": b"v"}))
        last = Position(5, 70)
        assert await caller.append(5, last, Record(5), snapshot=Snapshot(last, values, ("x",))) == 71
    await a.end()
    await a.start()
    async with called(a) as caller:
        await caller.promise(6)
        fetched = await caller.fetch(0, 6)
        assert {one.key: one.value for one in fetched.snapshot.values} == values
        assert (fetched.after, len(fetched.records), list(fetched.snapshot.witnesses)) == (70, 1, ["x"])


async def test_the_journal_of_another_cluster_and_another_witness_are_refused(cluster: Cluster) -> None:
    (a,) = await cluster.start("a")
    async with called(a) as caller:
        await caller.promise(5)
        with pytest.raises(grpc.aio.AioRpcError, match="keeps the journal of cluster c, and not of d"):
            await caller.promise(6, cluster="d")
        caller.name = "other"
        with pytest.raises(grpc.aio.AioRpcError, match="and not other: it has lost its disk"):
            await caller.promise(6)


class FailingTable:
    """The records on a disk that neither takes nor gives any while it fails."""

    def __init__(self, index: object) -> None:
        self.fails = False
        self.saved: list[Save] = []

    def name(self, store: str) -> str:
        return store

    def stored(self) -> Stored:
        if self.fails:
            raise IntegrityError("the disk gives nothing")
        return Stored()

    def write(self, saves: list[Save]) -> None:
        if self.fails:
            raise IntegrityError("the disk takes nothing")
        self.saved += saves


async def test_a_witness_that_can_neither_write_nor_read_acknowledges_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    async def sync(*_: object) -> None:
        """At once."""

    monkeypatch.setattr(witness, "WitnessTable", FailingTable)
    syncer, layout = SimpleNamespace(sync=sync), SimpleNamespace(written=None)
    store = SimpleNamespace(incarnation="w/1", index=None, syncer=syncer, layout=layout)
    service = WitnessService(cast("Any", store))
    table = cast("FailingTable", service._table)
    message = convert.append_to_pb("w", Append("c", 5, "m", ORIGIN, (Record(5, {"k": b"v"}),), 0, 0.0, None))
    table.fails = True
    for _ in range(3):
        with pytest.raises(IntegrityError):
            await service.Append(message, cast("Any", None))
    table.fails = False
    assert (await service.Append(message, cast("Any", None))).matched == 1
    assert table.saved
