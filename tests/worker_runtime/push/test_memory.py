"""A sidecar stays within its memory limit, however many workers send to it and however slow its disk is."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import subprocess
import sys
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from crc32c import crc32c

from benchmarks.usage import peak_resident_bytes
from rhino_core.ids import Epoch, FileEntry, JobSettings, Lane, StoreId, StoreVersion, Version
from rhino_core.rpc import greeting
from rhino_core.rpc.channel import aio_channel
from rhino_core.rpc.convert import epoch_to_pb, file_to_pb, group_of, settings_to_pb, store_version_to_pb, worker_to_pb
from rhino_pb import peer_pb2, replication_pb2, replication_pb2_grpc, sidecar_pb2, sidecar_pb2_grpc
from tests import forked
from tests.worker_runtime.pushing import stream
from tests.worker_runtime.scenario import worker
from worker_runtime.codec import LANE_TO_PB
from worker_runtime.push.core.framing import packed

MB = 1_000_000
LIMIT_MIB = 32
BESIDE_MB = 36  # what a sidecar needs for streams and files beside their bytes: threads, buffers, records
SENDERS = {Lane.COMMIT: 24, Lane.BULK: 6}
FILES = {Lane.COMMIT: (60, 64 * 1024), Lane.BULK: (2, 4_000_000)}  # of each sender: number and bytes


@contextlib.contextmanager
def slow_sidecar(folder: Path) -> Iterator[tuple[int, str, str]]:
    """Its process id and address, and that of its manager."""
    options = ("--bootstrap", "--listen", "127.0.0.1:0", "--data-dir", str(folder / "manager"))
    with forked.daemon("manager", *options) as manager:
        command = [
            *(sys.executable, "-m", "tests.worker_runtime.slow_sidecar", "sidecar", "--worker-id", "slow"),
            *("--host", "127.0.0.1", "--listen", "127.0.0.1:0", "--data-dir", str(folder / "slow")),
            *("--socket", str(folder / "slow.sock"), "--manager", manager["address"]),
            *("--memory-limit-mb", str(LIMIT_MIB)),
        ]
        with (folder / "slow.log").open("w") as log:
            sidecar = subprocess.Popen([*command, "--exit-with-parent"], stdout=subprocess.PIPE, stderr=log)
        try:
            assert sidecar.stdout is not None
            yield sidecar.pid, json.loads(sidecar.stdout.readline())["peer_address"], manager["address"]
        finally:
            sidecar.kill()
            sidecar.wait()


class Sender:
    """One stream that sends as much as it is allowed to, at once."""

    def __init__(self, number: int, lane: Lane) -> None:
        self._lane = lane
        self.name = f"sender-{lane.value}-{number}"
        self.store = StoreId("job", 0, number, lane.value)
        self.epoch = epoch_to_pb(Epoch(1, 1))
        self._credit = 0
        self._acked = 0
        self._waiting: deque[str] = deque()

    async def run(self, address: str) -> None:
        """A refused file is sent again: on a busy machine the sidecar may not know the sender in time."""
        count, size = FILES[self._lane]
        content = os.urandom(size)
        names = [
            f"{n}_id.changelog" if self._lane is Lane.COMMIT else f"SSTs/{n:06d}-u.sst" for n in range(1, count + 1)
        ]
        self._waiting = deque(names)
        transfers = itertools.count(1)
        async with stream(address, LANE_TO_PB[self._lane], self.name) as (wire, replies):
            while self._acked < count:
                if not self._waiting:
                    self._take(await replies.get())
                    continue
                number, name = next(transfers), self._waiting.popleft()
                entry = FileEntry(self.store, name, size, crc32c(content))
                begin = peer_pb2.PushBegin(transfer=number, file=file_to_pb(entry), epoch=self.epoch)
                wire.post(packed(peer_pb2.PushFrame(begin=begin)))
                sent = 0
                while sent < size:
                    while self._credit == 0:
                        self._take(await replies.get())
                    part = content[sent : sent + self._credit]
                    data = peer_pb2.PushData(transfer=number, offset=sent)
                    wire.post(packed(peer_pb2.PushFrame(data=data), len(part)), part)
                    self._credit -= len(part)
                    sent += len(part)

    def _take(self, reply: peer_pb2.PushReply) -> None:
        kind = reply.WhichOneof("reply")
        assert kind in ("welcome", "credit", "ack", "refusal"), reply
        self._credit += reply.welcome.credit_bytes + reply.credit.bytes
        self._acked += kind == "ack"
        if kind == "refusal":
            assert "the manager" in reply.refusal.message, reply
            self._waiting.append(reply.refusal.name)


async def introduce(senders: list[Sender], socket: Path, manager: str) -> None:
    """The manager names them, and knows their groups, which executors of the slow worker have named."""
    async with aio_channel(manager) as channel, aio_channel(f"unix://{socket}") as local:
        stub, sidecar = replication_pb2_grpc.ReplicationManagerStub(channel), sidecar_pb2_grpc.SidecarStub(local)
        settings = settings_to_pb(JobSettings(replication_factor=0))
        request = sidecar_pb2.AttachRequest(client="test", settings=settings, protocol_version="1")
        request.token = await asyncio.to_thread(greeting.ask, socket)
        session: Any = sidecar.Attach(request, timeout=60)
        session_id = (await session.read()).session_id
        for sender in senders:
            named = worker_to_pb(worker(sender.name))
            await stub.Register(replication_pb2.RegisterRequest(worker=named, process_id=sender.name), timeout=10)
            nothing = store_version_to_pb(StoreVersion(sender.store, Version(0, "")))
            await sidecar.Prepare(sidecar_pb2.PrepareRequest(session_id=session_id, versions=[nothing]), timeout=10)
        described = await stub.DescribeGroups(replication_pb2.DescribeGroupsRequest(), timeout=10)
        epochs = {group_of(status.group.group): status.group.epoch for status in described.groups}
        for sender in senders:
            sender.epoch = epochs[sender.store.group]
        session.cancel()


@pytest.mark.timeout(120)
def test_many_senders_and_a_slow_disk(tmp_path: Path) -> None:
    async def flood(address: str, manager: str) -> None:
        senders = [Sender(number, lane) for lane, count in SENDERS.items() for number in range(count)]
        await introduce(senders, tmp_path / "slow.sock", manager)
        await asyncio.gather(*(sender.run(address) for sender in senders))

    with slow_sidecar(tmp_path) as (pid, address, manager):
        before = psutil.Process(pid).memory_info().rss
        asyncio.run(flood(address, manager))
        grown_mb = (peak_resident_bytes(pid) - before) / MB
    assert sum(SENDERS[lane] * count * size for lane, (count, size) in FILES.items()) > 4 * LIMIT_MIB * 2**20
    assert grown_mb < LIMIT_MIB * 2**20 / MB + BESIDE_MB
