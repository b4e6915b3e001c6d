"""The receiving end of chain replication: one inbound stream per upstream neighbour and lane.

Frames of a stream are read in order while a second task brings the bytes to disk; what came in meanwhile for one file
is written in one go. Credit returns when its bytes are on disk (Rhino 4.2.2, phase 2).
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

from rhino.errors import AlreadyThereError, IntegrityError, NoSpaceError, RemoteProtocolError, RhinoError
from rhino.ids import FileEntry, Lane
from rhino.rpc.convert import epoch_of, file_of, worker_of, worker_to_pb
from rhino_pb import peer_pb2
from worker_runtime.core import events as ev
from worker_runtime.core.credit import GrantPool
from worker_runtime.figures import Figures
from worker_runtime.replication import Replication
from worker_runtime.rpc.convert import ack_to_pb, lane_of, refusal_to_pb
from worker_runtime.rpc.frames import DataFrame
from worker_runtime.storage.files import Incoming, Piece
from worker_runtime.storage.store import Store

log = logging.getLogger(__name__)
Replies = asyncio.Queue[peer_pb2.PushReply]


@dataclass(slots=True)
class Transfer:
    """One announced file. `accepted` is the machine's decision."""

    number: int
    entry: FileEntry
    accepted: asyncio.Future[bool]
    incoming: Incoming | None = None
    received_bytes: int = 0
    resumed: bool = False  # data before `received_bytes` may still come, and is thrown away
    pieces: list[Piece] = field(default_factory=list)  # received and not yet on disk
    over: bool = False  # stored, failed or not wanted: what still comes is thrown away

    @property
    def complete(self) -> bool:
        return self.received_bytes == self.entry.size_bytes


class Receiver:
    """All inbound streams; `Upstreams` of `Replication`."""

    def __init__(self, replication: Replication, figures: Figures, grants: GrantPool) -> None:
        self.replication = replication
        self.figures = figures
        self.grants = grants
        self._streams: dict[tuple[str, Lane], InboundStream] = {}
        self._by_grant: dict[int, InboundStream] = {}
        self._decisions: dict[int, asyncio.Future[bool]] = {}
        self._numbers = itertools.count(1)
        self.storing: set[asyncio.Task[None]] = set()  # last pieces that are being synced; they outlive their streams

    def decide(self, transfer: int, *, accept: bool) -> None:
        decision = self._decisions.pop(transfer, None)
        if decision is not None and not decision.done():
            decision.set_result(accept)

    def ack(self, ack: ev.SendAck) -> None:
        if stream := self._streams.get((ack.upstream, ack.lane)):
            stream.replies.put_nowait(ack_to_pb(ack))

    def refuse(self, refusal: ev.SendRefusal) -> None:
        if stream := self._streams.get((refusal.upstream, refusal.lane)):
            stream.replies.put_nowait(refusal_to_pb(refusal))

    def expect(self, entry: FileEntry) -> Transfer:
        number = next(self._numbers)
        decision: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._decisions[number] = decision
        return Transfer(number, entry, decision)

    async def serve(self, frames: AsyncIterator[peer_pb2.PushFrame | DataFrame]) -> AsyncIterator[peer_pb2.PushReply]:
        """One stream from Hello to its end. Raises RemoteProtocolError when the sender breaks the protocol."""
        first = await anext(frames, None)
        if not isinstance(first, peer_pb2.PushFrame) or first.WhichOneof("frame") != "hello":
            raise RemoteProtocolError("a push stream begins with Hello")
        sender, lane = worker_of(first.hello.sender), lane_of(first.hello.lane)
        if former := self._streams.get((sender.worker_id, lane)):
            await former.end()  # the sender has given it up, and goes on where it broke
        grant, credit = self.grants.open()
        stream = InboundStream(self, sender.worker_id, grant)
        self._streams[sender.worker_id, lane] = self._by_grant[grant] = stream
        work = {asyncio.create_task(stream.read(frames)), asyncio.create_task(stream.write())}
        try:
            me = worker_to_pb(self.replication.me)
            yield peer_pb2.PushReply(welcome=peer_pb2.PushWelcome(receiver=me, credit_bytes=credit))
            async for reply in stream.answers(work):
                yield reply
        finally:
            for task in work:
                task.cancel()
            if self._streams.get((sender.worker_id, lane)) is stream:
                del self._streams[sender.worker_id, lane]
            del self._by_grant[grant]
            self.grants.close(grant)
            self.feed_hungry()
            await asyncio.gather(*work, return_exceptions=True)
            await stream.abort()
            stream.ended.set()

    def forget(self, transfer: Transfer) -> None:
        self._decisions.pop(transfer.number, None)

    def feed_hungry(self) -> None:
        for grant in self.grants.hungry():
            if credit := self.grants.top_up(grant):
                self._by_grant[grant].give_credit(credit)


class InboundStream:
    """Frames of one stream."""

    def __init__(self, receiver: Receiver, upstream: str, grant: int) -> None:
        self.replies: Replies = asyncio.Queue()
        self.ended = asyncio.Event()
        self._superseded = asyncio.Event()
        self._receiver = receiver
        self._store: Store = receiver.replication.store
        self._upstream = upstream
        self._grant = grant
        self._transfers: dict[int, Transfer] = {}  # by the sender's number, until stored or over
        self._to_write: asyncio.Queue[tuple[int, Transfer]] = asyncio.Queue()  # each at most once

    def give_credit(self, credit_bytes: int) -> None:
        self.replies.put_nowait(peer_pb2.PushReply(credit=peer_pb2.PushCredit(bytes=credit_bytes)))

    async def end(self) -> None:
        """Another stream of the same sender takes its place."""
        self._superseded.set()
        await self.ended.wait()

    async def answers(self, work: set[asyncio.Task[None]]) -> AsyncIterator[peer_pb2.PushReply]:
        """Replies until the sender has closed its side, begun another stream or broken the protocol (raised)."""
        waiting = asyncio.ensure_future(self.replies.get())
        superseded = asyncio.ensure_future(self._superseded.wait())
        try:
            while True:
                await asyncio.wait({waiting, superseded, *work}, return_when=asyncio.FIRST_COMPLETED)
                if not waiting.done():
                    for task in work:
                        if task.done():
                            task.result()
                    return
                yield waiting.result()
                waiting = asyncio.ensure_future(self.replies.get())
        finally:
            waiting.cancel()
            superseded.cancel()

    async def read(self, frames: AsyncIterator[peer_pb2.PushFrame | DataFrame]) -> None:
        async for frame in frames:
            if isinstance(frame, DataFrame):
                self._data(frame.transfer, frame.offset, frame.data)
                continue
            match frame.WhichOneof("frame"):
                case "begin":
                    await self._begin(frame.begin)
                case "data":
                    self._data(frame.data.transfer, frame.data.offset, frame.data.data)
                case other:
                    raise RemoteProtocolError(f"unexpected frame {other} in a push stream")

    async def abort(self) -> None:
        """The stream has ended: large unfinished files are kept for the next attempt, others thrown away."""
        for transfer in self._transfers.values():
            self._receiver.forget(transfer)
            if transfer.incoming is not None and not transfer.over:
                with contextlib.suppress(RhinoError):  # noted by the disk; nothing depends on it
                    await self._store.suspend_incoming(transfer.entry, transfer.incoming)
            if not transfer.over:
                self._receiver.replication.post(ev.TransferFailed(transfer.number, None))

    async def write(self) -> None:
        """Brings to disk what has been read, file after file, and returns its credit; until cancelled."""
        while True:
            number, transfer = await self._to_write.get()
            pieces, transfer.pieces = transfer.pieces, []
            if not transfer.over:
                await self._put(transfer, pieces)
            self._drop_when_over(number, transfer)
            self._settle(sum(map(len, pieces)))

    def _settle(self, size_bytes: int) -> None:
        if credit := self._receiver.grants.settled(self._grant, size_bytes):
            self.give_credit(credit)
        self._receiver.feed_hungry()

    async def _begin(self, message: peer_pb2.PushBegin) -> None:
        entry = file_of(message.file)
        transfer = self._receiver.expect(entry)
        self._transfers[message.transfer] = transfer
        chain = tuple(worker_of(worker) for worker in message.chain)
        epoch = epoch_of(message.epoch)
        self._receiver.replication.post(ev.BeginReceived(self._upstream, transfer.number, entry, epoch, chain))
        transfer.over = not await transfer.accepted
        if not transfer.over:
            await self._resume(message, transfer)
        if transfer.complete and not transfer.over:  # an empty file: no data will come
            self._enqueue(message.transfer, transfer, b"")
        self._drop_when_over(message.transfer, transfer)

    async def _resume(self, message: peer_pb2.PushBegin, transfer: Transfer) -> None:
        """Goes on with what a broken attempt has left, and says so."""
        try:
            transfer.incoming = await self._store.resume_incoming(transfer.entry)
        except RhinoError as error:  # the file is begun anew, and may be refused then
            log.warning("cannot go on with a file", extra={"file": transfer.entry.name, "error": str(error)})
        if transfer.incoming is not None:
            transfer.received_bytes, transfer.resumed = transfer.incoming.size_bytes, True
            self._receiver.figures.resumed_bytes += transfer.received_bytes
        if message.ask_offset or transfer.resumed:
            resume = peer_pb2.PushResume(transfer=message.transfer, offset=transfer.received_bytes)
            self.replies.put_nowait(peer_pb2.PushReply(resume=resume))

    def _data(self, number: int, offset: int, data: Piece) -> None:
        grants, size = self._receiver.grants, len(data)
        grants.received(self._grant, size)
        self._receiver.figures.received_bytes += size
        transfer = self._transfers.get(number)
        if transfer is None:
            raise RemoteProtocolError(f"data of transfer {number}, which has not begun or is complete")
        if transfer.resumed and offset < transfer.received_bytes:
            known = min(transfer.received_bytes - offset, size)
            self._settle(known)
            offset, data, size = offset + known, data[known:], size - known
            if not size:
                return
        if offset != transfer.received_bytes or offset + size > transfer.entry.size_bytes:
            raise RemoteProtocolError(f"data at {offset}, expected {transfer.received_bytes}")
        transfer.received_bytes += size
        self._enqueue(number, transfer, data)

    def _enqueue(self, number: int, transfer: Transfer, piece: Piece) -> None:
        if not transfer.pieces:
            self._to_write.put_nowait((number, transfer))
        transfer.pieces.append(piece)

    def _drop_when_over(self, number: int, transfer: Transfer) -> None:
        if transfer.over and transfer.complete and not transfer.pieces:
            self._transfers.pop(number, None)

    async def _put(self, transfer: Transfer, pieces: list[Piece]) -> None:
        """Puts bytes on disk, the last ones into the store. While those are synced, the writer goes on."""
        if not (transfer.complete and self._store.synced(transfer.entry.store)):
            await self._put_now(transfer, pieces, lambda: None)
            return
        placed = asyncio.Event()
        task = asyncio.create_task(self._put_now(transfer, pieces, placed.set), name=f"sync of {transfer.entry.name}")
        self._receiver.storing.add(task)
        task.add_done_callback(lambda done: self._synced(transfer, done))
        task.add_done_callback(lambda _: placed.set())
        transfer.over = True
        await placed.wait()

    def _synced(self, transfer: Transfer, task: asyncio.Task[None]) -> None:
        self._receiver.storing.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("file not received", extra={"file": transfer.entry.name, "error": repr(error)})
            failure = ev.TransferFailed(transfer.number, ev.Refusal.STORAGE, repr(error))
            self._receiver.replication.post(failure)

    async def _put_now(self, transfer: Transfer, pieces: list[Piece], placed: Callable[[], None]) -> None:
        """A failure goes to the machine and ends the transfer."""
        last = transfer.complete
        outcome: ev.Event | None = None
        try:
            if last:
                await self._finish(transfer, pieces, placed)
                outcome = ev.TransferStored(transfer.number)
            elif transfer.incoming is None:
                transfer.incoming = await self._store.start_incoming(transfer.entry, pieces)
            else:
                await self._store.write_incoming(transfer.entry, transfer.incoming, pieces)
        except RhinoError as error:
            outcome = ev.TransferFailed(transfer.number, _reason(error, last=last), str(error))
            log.warning("file not received", extra={"file": transfer.entry.name, "error": str(error)})
            if transfer.incoming is not None:
                with contextlib.suppress(RhinoError):
                    await self._store.abort_incoming(transfer.entry, transfer.incoming)
        if outcome is not None:
            transfer.over = True
            self._receiver.replication.post(outcome)

    async def _finish(self, transfer: Transfer, pieces: list[Piece], placed: Callable[[], None]) -> None:
        if transfer.incoming is None:
            await self._store.receive_whole(transfer.entry, pieces, placed)
        else:
            await self._store.write_incoming(transfer.entry, transfer.incoming, pieces)
            await self._store.finish_incoming(transfer.entry, transfer.incoming, placed)


def _reason(error: RhinoError, *, last: bool) -> ev.Refusal:
    if isinstance(error, AlreadyThereError):
        return ev.Refusal.NAME_CONFLICT
    if isinstance(error, NoSpaceError) or not last or not isinstance(error, IntegrityError):
        return ev.Refusal.STORAGE
    return ev.Refusal.CHECKSUM
