"""Both ends of a push stream send exactly the bytes that are recorded in `recorded.json`.

`python -m tests.worker_runtime.push.test_recorded` records them anew. Do so only if the wire format
changes on purpose.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import struct
import sys
import tempfile
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from crc32c import crc32c

from rhino_core.ids import Epoch, FileEntry, JobSettings, Lane, Member, ReplicaGroup, Version, Worker
from rhino_core.rpc.convert import epoch_to_pb, file_to_pb, store_to_pb, worker_to_pb
from rhino_pb import peer_pb2
from tests.worker_runtime.push.core.frames import EPOCH, STORE, content, part, reply
from tests.worker_runtime.scenario import worker
from worker_runtime.protocol import events as ev
from worker_runtime.protocol.credit import GrantPool
from worker_runtime.push.connection import Connection
from worker_runtime.push.core.framing import packed
from worker_runtime.push.opening import Opening
from worker_runtime.push.receiver import Receiver
from worker_runtime.push.sender import Link
from worker_runtime.replication import Replication
from worker_runtime.statistics import Statistics
from worker_runtime.storage.store import Store

RECORDED = Path(__file__).with_name("recorded.json")
ME, OTHER, THIRD = worker("me"), worker("other"), worker("third")
CHUNK_BYTES = 64
QUIET_S = 0.5  # a step is recorded until nothing has arrived for so long
PATIENCE_S = 10.0  # for what was recorded
POLL_S = 0.02
Step = dict[str, Any]


def entry(name: str, data: bytes, **more: Any) -> FileEntry:
    return FileEntry(STORE, name, len(data), crc32c(data), written_by="me", **more)


class Nobody:
    """Stands for the parts of a sidecar that a stream does not need."""

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_, **__: None


class Transcript:
    """The messages and events of one end, step by step. With a recording, it waits until it has the recorded ones."""

    def __init__(self, recorded: list[Step] | None) -> None:
        self.steps: list[Step] = []
        self._recorded = recorded

    async def add(self, what: str, sock: socket.socket, said: Callable[[bytes], Step], wait_s: float = QUIET_S) -> None:
        """`said`: what the end has said, given the bytes that it has sent since the last step."""
        got, clock = b"", asyncio.get_running_loop().time
        expected = None if self._recorded is None else self._recorded[len(self.steps)]
        until = clock() + (wait_s if expected is None else PATIENCE_S)
        while clock() < until and {"step": what, **said(got)} != expected:
            try:  # not `sock_recv` with a time limit: if both are due at once, its bytes are lost
                piece = sock.recv(1 << 20)
            except BlockingIOError:
                piece = b""
            if piece:
                got, until = got + piece, max(until, clock() + QUIET_S)
            else:
                await asyncio.sleep(POLL_S)
        self.steps.append({"step": what, **said(got)})


@contextlib.asynccontextmanager
async def replication(folder: Path, posted: list[ev.Event]) -> AsyncIterator[Replication]:
    store = Store.open("me", folder, 0)
    made = Replication(ME, store)
    made.subscribe(posted.append)
    running = asyncio.create_task(made.run())
    try:
        yield made
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        store.close()


# ---------------------------------------------------------------- the sender


def refusal(transfer: int, name: str) -> bytes:
    message = peer_pb2.PushRefusal(
        transfer=transfer,
        store=store_to_pb(STORE),
        name=name,
        reason=peer_pb2.REFUSAL_REASON_STALE_EPOCH,
        current_epoch=epoch_to_pb(Epoch(1, 2)),
        message="stale",
        member=worker_to_pb(OTHER),
    )
    return reply(refusal=message)


def ack(name: str) -> bytes:
    message = peer_pb2.PushAck(
        store=store_to_pb(STORE), name=name, epoch=epoch_to_pb(EPOCH), member=worker_to_pb(OTHER), holds=True
    )
    return reply(ack=message)


def said(posted: list[ev.Event]) -> list[str]:
    return [repr(event) for event in posted if not isinstance(event, ev.Tick)]


async def sender_steps(folder: Path, lane: Lane, recorded: list[Step] | None = None) -> list[Step]:
    posted: list[ev.Event] = []
    transcript = Transcript(recorded)
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)

    async def connected(link: Link, peer: Worker) -> Connection:
        return Connection(ours)

    async with replication(folder, posted) as made, asyncio.timeout(120):
        made.bind(Nobody(), Nobody(), Nobody(), Nobody())
        link = Link(made, Statistics(), Opening(), OTHER, lane, CHUNK_BYTES)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Link, "_connect", connected)
            running = asyncio.create_task(link.run(lambda _: True))
            suffix = "changelog" if lane is Lane.COMMIT else "sst"

            def stored(number: int, size: int, **more: Any) -> ev.OfferFile:
                data = content(size, number)
                name = f"{number}_id.{suffix}" if lane is Lane.COMMIT else f"SSTs/{number:06d}-x.{suffix}"
                lineage = (Version(1, "id"),) if lane is Lane.COMMIT and number > 1 else ()
                found = entry(name, data, lineage=lineage, **more)
                path = made.store.files.path(found)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(data)
                return ev.OfferFile(OTHER, found, EPOCH, (THIRD,), lane)

            async def step(
                what: str, *replies: bytes, offers: tuple[ev.OfferFile, ...] = (), wait_s: float = QUIET_S
            ) -> None:
                for data in replies:
                    await asyncio.get_running_loop().sock_sendall(theirs, data)
                if replies:
                    await asyncio.sleep(0.05)
                for offer in offers:
                    link.offer(offer)
                await transcript.add(what, theirs, lambda got: {"sent": got.hex(), "events": said(posted)}, wait_s)
                posted.clear()

            await step("welcome", reply(welcome=peer_pb2.PushWelcome(credit_bytes=600)))
            small, second = stored(1, 10), stored(2, 20)
            await step("small files", offers=(small, second))
            await step("a file in parts", offers=(stored(3, 200),))
            await step("acknowledged", ack(small.entry.name), ack(second.entry.name))
            await step("an empty file", offers=(stored(4, 0),))
            linked = stored(5, 100, same_as="SSTs/000009-y.sst" if lane is Lane.BULK else "")
            await step("perhaps the same bytes", offers=(linked,))
            if lane is Lane.BULK:
                await step("resumed", reply(resume=peer_pb2.PushResume(transfer=5, offset=30)))
            large = stored(6, 1000)
            await step("beyond the credit", offers=(large,))
            await step("more credit", reply(credit=peer_pb2.PushCredit(bytes=100)))
            await step("refused", refusal(6, large.entry.name), reply(credit=peer_pb2.PushCredit(bytes=500)))
            await step("the next file", offers=(stored(7, 30),))
            await step("idle", wait_s=3.0)
            await step("broken", reply(broken=peer_pb2.PushBroken(message="no")))
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
        theirs.close()
    return transcript.steps


# ---------------------------------------------------------------- the receiver


def begin(transfer: int, file: FileEntry, epoch: Epoch = EPOCH, *, ask_offset: bool = False) -> bytes:
    message = peer_pb2.PushBegin(
        transfer=transfer, file=file_to_pb(file), epoch=epoch_to_pb(epoch), chain=[], ask_offset=ask_offset
    )
    return packed(peer_pb2.PushFrame(begin=message))


def frames(replies: bytes) -> list[str]:
    """The frames but those of credit: threads and disks decide how much of it goes back at a time."""
    found = []
    while len(replies) >= 8:
        size, data = struct.unpack_from("<II", replies)
        assert data == 0
        frame, replies = replies[: 8 + size], replies[8 + size :]
        if len(frame) < 8 + size:
            break  # the rest is on its way
        if not peer_pb2.PushReply.FromString(frame[8:]).HasField("credit"):
            found.append(frame.hex())
    return found


async def receiver_steps(folder: Path, lane: Lane, recorded: list[Step] | None = None) -> list[Step]:
    posted: list[ev.Event] = []
    transcript = Transcript(recorded)
    async with replication(folder, posted) as made, asyncio.timeout(120):
        receiver = Receiver(made, Statistics(), GrantPool(8 << 20, 4 << 20))
        made.bind(Nobody(), receiver, Nobody(), Nobody())
        group = ReplicaGroup(STORE.group, Epoch(1, 2), (Member(ME, True), Member(OTHER, True)), 1, JobSettings())
        made.post(ev.GroupAdopted(replace(group, epoch=EPOCH)))

        async def session(*parts: tuple[str, bytes]) -> None:
            ours, theirs = socket.socketpair()
            theirs.setblocking(False)
            serving = asyncio.create_task(receiver.serve(Connection(ours), "other", lane))
            await transcript.add("opened", theirs, lambda got: {"sent": got.hex()})
            for what, data in parts:
                posted.clear()
                await asyncio.get_running_loop().sock_sendall(theirs, data)
                await transcript.add(what, theirs, lambda got: {"sent": frames(got), "events": said(posted)})
            theirs.close()
            await serving

        sst = content(3 << 20)
        large, small = entry("SSTs/000001-x.sst", sst), entry("1_id.changelog", content(10))
        other = entry("SSTs/000002-x.sst", content(1000, 7))
        await session(
            ("a small file", begin(1, small) + part(1, 0, content(10))),
            ("the same file again", begin(2, small) + part(2, 0, content(10))),
            ("in parts", begin(3, other) + part(3, 0, content(600, 7)) + part(3, 600, content(1000, 7)[600:])),
            ("an empty file", begin(4, entry("SSTs/000003-x.sst", b""))),
            ("wrong bytes", begin(5, entry("SSTs/000004-x.sst", content(50))) + part(5, 0, bytes(50))),
            ("another file of this name", begin(6, entry(small.name, b"other")) + part(6, 0, b"other")),
            ("a stale epoch", begin(7, entry("SSTs/000005-x.sst", b"a"), Epoch(1, 0)) + part(7, 0, b"a")),
            ("asked, nothing here", begin(8, entry("SSTs/000006-x.sst", b"abc"), ask_offset=True)),
            ("its bytes", part(8, 0, b"abc")),
            ("the same bytes", begin(9, replace(other, name="SSTs/000007-x.sst", same_as=other.name), ask_offset=True)),
            ("credit returned", packed(peer_pb2.PushFrame(returned=peer_pb2.PushReturn(bytes=1 << 20)))),
            ("half of a large file", begin(10, large) + part(10, 0, sst[: 2 << 20])),
        )
        await session(
            ("resumed, some bytes twice", begin(1, large) + part(1, 0, sst[: 1 << 20])),
            ("its end", part(1, 1 << 20, sst[1 << 20 :])),
            ("data without a file", part(77, 0, b"x")),
        )
        for what, data in (
            ("beyond the file", begin(1, entry("SSTs/000011-x.sst", b"a")) + part(1, 0, b"ab")),
            ("a gap", begin(1, entry("SSTs/000011-x.sst", b"abc")) + part(1, 1, b"bc")),
            (
                "beyond the credit",
                begin(1, entry("SSTs/000011-x.sst", bytes(9 << 20))) + part(1, 0, bytes(9 << 20))[:99],
            ),
            ("garbage", struct.pack("<II", 4, 0) + b"\xff\xff\xff\xff"),
            ("too large", struct.pack("<II", 1 << 30, 0)),
            ("data behind a Begin", struct.pack("<II", len(begin(1, small)) - 8, 5) + begin(1, small)[8:] + b"abcde"),
            ("no frame", packed(peer_pb2.PushFrame())),
        ):
            await session((what, data))
    return transcript.steps


async def record(folder: Path) -> dict[str, list[Step]]:
    return {
        f"{name} {lane.value}": await steps(folder / f"{name}-{lane.value}", lane)
        for name, steps in (("sender", sender_steps), ("receiver", receiver_steps))
        for lane in Lane
    }


@pytest.mark.parametrize("lane", Lane)
async def test_a_sender_sends_the_recorded_bytes(tmp_path: Path, lane: Lane) -> None:
    recorded = json.loads(RECORDED.read_text())[f"sender {lane.value}"]
    assert await sender_steps(tmp_path, lane, recorded) == recorded


@pytest.mark.parametrize("lane", Lane)
async def test_a_receiver_sends_the_recorded_bytes(tmp_path: Path, lane: Lane) -> None:
    recorded = json.loads(RECORDED.read_text())[f"receiver {lane.value}"]
    assert await receiver_steps(tmp_path, lane, recorded) == recorded


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        RECORDED.write_text(json.dumps(asyncio.run(record(Path(temporary))), indent=1) + "\n")
    print(f"recorded to {RECORDED}", file=sys.stderr)
