"""Hostile messages to every port: each is refused, no process dies, and everything works as before."""

from __future__ import annotations

import asyncio
import contextlib
import math
import random
import secrets
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from google.protobuf.descriptor import FieldDescriptor, MethodDescriptor

from rhino_core.errors import RhinoError
from rhino_core.ids import StoreId
from rhino_core.rpc import rules
from rhino_core.rpc.channel import aio_channel
from rhino_core.rpc.convert import worker_to_pb
from rhino_pb import handover_pb2, peer_pb2, replication_pb2, replication_pb2_grpc
from tests.rhino_core import messages
from tests.rhino_core.messages import dotted, paths, rule_of, sample, with_value
from tests.worker_runtime.cluster import Cluster, Process, changelog_bytes
from tests.worker_runtime.pushing import stream
from tests.worker_runtime.scenario import version, worker
from tests.worker_runtime.support.with_manager import manager, settings_of
from worker_runtime.push.core.framing import packed

STORE = StoreId("job", 0, 3, "default")
FUZZ_S, CALLS, PUSHES = 4.0, 400, 20  # at least
FUZZER = "f"  # whom the manager has named: others get no stream at all
NAMES = ("../../x", "a\nb")
BUGS = (grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN, grpc.StatusCode.UNIMPLEMENTED)
LANES = (peer_pb2.LANE_COMMIT, peer_pb2.LANE_BULK)
pytestmark = pytest.mark.timeout(180)


async def commit(sidecar: Process, number: int) -> None:
    async with sidecar.attach(commit_timeout_s=20, patient=True) as client:
        lineage = [version(n) for n in range(1, number)]
        reply = await client.commit(STORE, version(number), changelog_bytes(number), lineage)
        assert reply.copies == 2


@dataclass
class Ways:
    """Channels to a manager and to a sidecar's two servers."""

    manager: grpc.aio.Channel
    peer: grpc.aio.Channel
    local: grpc.aio.Channel

    async def send(self, method: MethodDescriptor, *requests: bytes, patience_s: float = 5.0) -> grpc.StatusCode:
        """The code with which the call ends; OK also for a stream that goes on."""
        service = method.containing_service.name
        channel: Any = {"Peer": self.peer, "Witness": self.peer, "Sidecar": self.local}.get(service, self.manager)
        path = f"/{method.containing_service.full_name}/{method.name}"
        try:
            async with asyncio.timeout(patience_s):
                if not method.client_streaming and not method.server_streaming:
                    await channel.unary_unary(path)(requests[0])
                    return grpc.StatusCode.OK
                if method.client_streaming:
                    call: Any = channel.stream_stream(path)(_each(requests))
                else:
                    call = channel.unary_stream(path)(requests[0])
                async for _ in call:
                    if not method.client_streaming:
                        break
                call.cancel()
        except grpc.aio.AioRpcError as error:
            return error.code()
        except TimeoutError:
            return grpc.StatusCode.OK
        return grpc.StatusCode.OK


async def _each(requests: tuple[bytes, ...]) -> AsyncIterator[bytes]:
    for request in requests:
        yield request


def sent_before(method: MethodDescriptor, request: Any) -> list[bytes]:
    """A driver's session begins with a hello."""
    if method.name != "DriverSession" or request.WhichOneof("event") == "hello":
        return []
    return [handover_pb2.DriverEvent(hello=handover_pb2.DriverHello(application_id="app")).SerializeToString()]


@contextlib.asynccontextmanager
async def ways_to(address: str, sidecar: Process) -> AsyncIterator[Ways]:
    assert sidecar.worker is not None
    async with (
        aio_channel(address) as to_manager,
        aio_channel(sidecar.worker.peer_address) as to_peer,
        aio_channel(f"unix://{sidecar.settings.socket}") as to_local,
    ):
        yield Ways(to_manager, to_peer, to_local)


@contextlib.asynccontextmanager
async def running(folder: Path, cluster: Cluster) -> AsyncIterator[tuple[str, Process]]:
    """A query has committed to two sidecars under a real manager; the address of that, and one of them."""
    async with manager(settings_of(folder, lease_s=20)) as cluster.address:
        a, _ = await cluster.start("a", "b")
        await commit(a, 1)
        yield cluster.address, a


async def test_a_hostile_name_is_refused_by_every_method(cluster: Cluster, tmp_path: Path) -> None:
    async with running(tmp_path, cluster) as (address, a), ways_to(address, a) as ways:
        tried = 0
        for method in messages.methods():
            for path in paths(method.input_type):
                if path[-1].type != FieldDescriptor.TYPE_STRING or not isinstance(rule_of(path[-1]), rules.Name):
                    continue
                for value in NAMES if path[-1].name != "location" else NAMES[1:]:
                    request = with_value(method.input_type, path, value)
                    before = sent_before(method, request)
                    code = await ways.send(method, *before, request.SerializeToString())
                    assert code is grpc.StatusCode.INVALID_ARGUMENT, f"{method.full_name} {dotted(path)} {code}"
                    tried += 1
        assert tried > 150
        await commit(a, 2)


class Fuzz:
    """Random requests, from harmless samples to noise; the same for a seed."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def request(self, method: MethodDescriptor) -> bytes:
        message = sample(method.input_type)
        alternatives = [f for f in method.input_type.fields if f.containing_oneof is not None]
        if alternatives:
            messages.fill(message, self.random.choice(alternatives))
        match self.random.randrange(4):
            case 0:
                return self.random.randbytes(self.random.randrange(200))
            case 1:
                return self.garbled(message.SerializeToString())
            case _:
                self.spoil(message)
                data: bytes = message.SerializeToString()
                return data

    def garbled(self, data: bytes) -> bytes:
        garbled = bytearray(data)
        for _ in range(self.random.randrange(1, 6)):
            if garbled:
                garbled[self.random.randrange(len(garbled))] = self.random.randrange(256)
        return bytes(garbled[: self.random.randrange(len(garbled) + 1)] if self.random.random() < 0.3 else garbled)

    def spoil(self, message: Any) -> None:
        """A few numbers, and now and then a name, become anything that the field can carry."""
        for _ in range(self.random.randrange(1, 4)):
            holder = message
            while True:
                field = self.random.choice(list(holder.DESCRIPTOR.fields) or [None])
                if field is None or messages.is_map(field):
                    break
                if field.message_type is None:
                    self._spoil_value(holder, field)
                    break
                inside = getattr(holder, field.name)
                if field.is_repeated and not inside:
                    break
                holder = inside[0] if field.is_repeated else inside

    def _spoil_value(self, holder: Any, field: FieldDescriptor) -> None:
        value = self._value(field)
        if value is None:
            return
        if field.is_repeated:
            getattr(holder, field.name).extend([value] * self.random.choice((1, 3, 12_000)))
        else:
            setattr(holder, field.name, value)

    def _value(self, field: FieldDescriptor) -> Any:
        pick = self.random.choice
        whole = {1: (32, False), 3: (64, True), 4: (64, False), 5: (32, True), 13: (32, False)}
        match field.type:
            case FieldDescriptor.TYPE_DOUBLE:
                return pick((math.nan, math.inf, -1.0, 1e308, 0.5))
            case FieldDescriptor.TYPE_INT64 | FieldDescriptor.TYPE_INT32:
                bits = whole[field.type][0]
                return pick((-(2 ** (bits - 1)), -1, 0, 1, 99_999, 2 ** (bits - 1) - 1))
            case FieldDescriptor.TYPE_UINT64 | FieldDescriptor.TYPE_UINT32:
                return pick((0, 1, 70_000, 2 ** whole.get(field.type, (32, False))[0] - 1))
            case FieldDescriptor.TYPE_STRING:
                return pick(("", ".", "../x", "\x00", "w1", "a" * 100_000, "\x1b[2J", "name", "0/99999"))
            case FieldDescriptor.TYPE_BOOL:
                return pick((True, False))
            case FieldDescriptor.TYPE_BYTES:
                return self.random.randbytes(100)
            case _:
                return None

    def frames(self) -> bytes:
        """The bytes on a push stream after the token."""
        pieces = []
        for _ in range(self.random.randrange(1, 5)):
            frame = sample(peer_pb2.PushFrame.DESCRIPTOR)
            messages.fill(frame, self.random.choice(list(peer_pb2.PushFrame.DESCRIPTOR.fields)))
            if self.random.random() < 0.5:
                self.spoil(frame)
            data = self.random.randbytes(self.random.choice((0, 0, 10, 5000)))
            pieces.append(packed(frame, len(data)) + data)
        whole = b"".join(pieces)
        return self.garbled(whole) if self.random.random() < 0.5 else whole


class Tally:
    """Counts the calls and pushes that were sent, and says when they are enough."""

    def __init__(self) -> None:
        self.codes = Counter[tuple[str, grpc.StatusCode]]()
        self.pushes = 0
        self._until = time.monotonic() + FUZZ_S

    def enough(self) -> bool:
        return time.monotonic() > self._until and self.codes.total() > CALLS and self.pushes > PUSHES


async def fuzz_calls(ways: Ways, fuzz: Fuzz, tally: Tally) -> None:
    every = messages.methods()
    while not tally.enough():
        method = fuzz.random.choice(every)
        request = fuzz.request(method)
        before: list[bytes] = []
        if method.name == "DriverSession" and fuzz.random.random() < 0.8:
            before = sent_before(method, handover_pb2.DriverEvent())
        code = await ways.send(method, *before, request, patience_s=0.5)
        tally.codes[method.name, code] += 1


async def fuzz_pushes(address: str, fuzz: Fuzz, tally: Tally) -> None:
    while not tally.enough():
        with contextlib.suppress(RhinoError, OSError, grpc.aio.AioRpcError):
            async with stream(address, fuzz.random.choice(LANES), sender=FUZZER) as (wire, _):
                wire.sock.settimeout(1)
                wire.sock.sendall(fuzz.frames())
                tally.pushes += 1
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(0.05):
                        await asyncio.shield(wire.lost)


async def test_nobody_dies_of_a_message(cluster: Cluster, tmp_path: Path) -> None:
    seed = secrets.randbelow(1 << 32)
    print(f"seed {seed}")
    async with running(tmp_path, cluster) as (address, a), ways_to(address, a) as ways:
        assert a.worker is not None
        known = replication_pb2.RegisterRequest(worker=worker_to_pb(worker(FUZZER)), process_id="f")
        await replication_pb2_grpc.ReplicationManagerStub(ways.manager).Register(known, timeout=10)
        tally = Tally()
        calls = [fuzz_calls(ways, Fuzz(seed + number), tally) for number in range(4)]
        async with asyncio.timeout(120):
            await asyncio.gather(fuzz_pushes(a.worker.peer_address, Fuzz(seed), tally), *calls)
        assert not {key: count for key, count in tally.codes.items() if key[1] in BUGS}
        await commit(a, 2)
    for sidecar in cluster.sidecars.values():
        lines = (sidecar.settings.data_dir.parent / "log").read_text().splitlines()
        assert not [line for line in lines if "Traceback" in line], "bugs that no caller learned of"
    for sidecar in cluster.sidecars.values():
        await sidecar.end(signal.SIGKILL)
    async with manager(settings_of(tmp_path, address, bootstrap=False, lease_s=20)):
        for sidecar in cluster.sidecars.values():
            await sidecar.start()
        await commit(a, 3)
