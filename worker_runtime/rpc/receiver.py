"""The receiving end of chain replication on the event loop: decisions, finished files, credit and replies.

One stream per upstream neighbour and lane, each read by a thread (inbound.py). Credit returns when its bytes are on
disk (Rhino 4.2.2, phase 2).
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import CancelledError as StreamEnded
from concurrent.futures import ThreadPoolExecutor

from rhino.errors import AlreadyThereError, IntegrityError, NoSpaceError, RhinoError
from rhino.ids import FileEntry, Lane
from rhino_pb import peer_pb2
from worker_runtime.core import events as ev
from worker_runtime.core.credit import GrantPool
from worker_runtime.figures import Figures
from worker_runtime.replication import Replication
from worker_runtime.rpc.convert import ack_to_pb, refusal_to_pb
from worker_runtime.rpc.inbound import Inbound, Transfer
from worker_runtime.rpc.wire import Wire, packed
from worker_runtime.storage.index import StoredFile
from worker_runtime.storage.threads import run_in

END_S = 1.0  # for a stream to put away what it has, when its sender has begun another one: its disk may hang
log = logging.getLogger(__name__)


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

    def decide(self, transfer: int, *, accept: bool) -> None:
        decision = self._decisions.pop(transfer, None)
        if decision is not None and not decision.done():
            decision.set_result(accept)

    def ack(self, ack: ev.SendAck) -> None:
        if stream := self._streams.get((ack.upstream, ack.lane)):
            stream.reply(ack_to_pb(ack))

    def refuse(self, refusal: ev.SendRefusal) -> None:
        if stream := self._streams.get((refusal.upstream, refusal.lane)):
            stream.reply(refusal_to_pb(refusal))

    async def decision(self, upstream: str, transfer: Transfer) -> bool:
        """What the machine says to a Begin."""
        number = transfer.number = next(self._numbers)
        decided: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._decisions[number] = decided
        self.replication.post(ev.BeginReceived(upstream, number, transfer.entry, transfer.epoch, transfer.chain))
        try:
            return await decided
        finally:
            self._decisions.pop(number, None)

    async def serve(self, wire: Wire, sender: str, lane: Lane) -> None:
        """One stream, from Welcome to its end."""
        if (older := self._streams.get((sender, lane))) is not None:
            older.end()  # its sender has given it up, and goes on where it broke
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(END_S):
                    await older.read.wait()
        grant, credit = self.grants.open()
        stream = InboundStream(self, wire, sender, lane, grant)
        self._streams[sender, lane] = self._by_grant[grant] = stream
        try:
            await stream.run(credit)
        finally:
            self.left(stream)
            del self._by_grant[grant]
            self.grants.close(grant)
            self.feed_hungry()

    def left(self, stream: InboundStream) -> None:
        """It is over, and nobody is to be answered on it."""
        self._streams = {key: other for key, other in self._streams.items() if other is not stream}

    def feed_hungry(self) -> None:
        for grant in self.grants.hungry():
            if credit := self.grants.top_up(grant):
                self._by_grant[grant].give_credit(credit)


class InboundStream:
    """One stream; `Loop` of its reading end."""

    def __init__(self, receiver: Receiver, wire: Wire, upstream: str, lane: Lane, grant: int) -> None:
        self._receiver = receiver
        self._wire = wire
        self._upstream = upstream
        self._lane = lane
        self._grant = grant
        self._store = receiver.replication.store
        self._inbound = Inbound(wire.sock, self._store, self)
        self._loop = asyncio.get_running_loop()
        self._loop_thread = threading.get_ident()
        self._large: asyncio.Future[None] | None = None  # a file that comes next; the loop reads until then
        self._tasks: dict[asyncio.Task[None], FileEntry] = {}  # files that are being finished
        self._undecided: set[asyncio.Task[bool]] = set()
        self._open: dict[int, Transfer] = {}  # accepted, with bytes on their way
        self.read = asyncio.Event()  # to its end: what has come of unfinished files can be gone on with
        self._ended = False

    def reply(self, message: peer_pb2.PushReply) -> None:
        self._wire.post(packed(message))

    def give_credit(self, credit_bytes: int) -> None:
        self._inbound.grant(credit_bytes)
        self.reply(peer_pb2.PushReply(credit=peer_pb2.PushCredit(bytes=credit_bytes)))

    async def run(self, credit_bytes: int) -> None:
        """Until the sender has ended it or has broken the protocol; then files that were complete are finished."""
        pool = ThreadPoolExecutor(1, thread_name_prefix=f"from-{self._upstream}")
        self._inbound.grant(credit_bytes)
        self.reply(peer_pb2.PushReply(welcome=peer_pb2.PushWelcome(credit_bytes=credit_bytes)))
        reading = asyncio.ensure_future(self._read(pool))
        try:
            await asyncio.shield(reading)
        except RhinoError as error:
            log.warning("push stream refused", extra={"peer": self._upstream, "error": str(error)})
            self.reply(peer_pb2.PushReply(broken=peer_pb2.PushBroken(message=str(error))))
        finally:
            self.end()
            await asyncio.wait({reading})
            pool.shutdown()
            self._receiver.left(self)
            self.read.set()
            for number in self._open:
                self._receiver.replication.post(ev.TransferFailed(number, None))
            if self._tasks:
                await asyncio.wait(self._tasks)  # their bytes are in memory, and so within this stream's credit
            self._wire.close()

    async def _read(self, pool: ThreadPoolExecutor) -> None:
        """Until the stream ends. Raises RemoteProtocolError when the sender breaks the protocol."""
        try:
            if self._lane is Lane.BULK:
                await run_in(pool, self._inbound.run)
            while True:
                await self._read_small()
                await run_in(pool, self._inbound.read_large)
        except (EOFError, OSError):
            return  # the sender connects again, and offers again what still matters
        finally:
            await run_in(pool, self._inbound.close)

    async def _read_small(self) -> None:
        """On the loop, until a large file comes."""
        if self._ended:
            raise EOFError
        if not self._inbound.read_ahead():
            return
        large = self._large = self._loop.create_future()
        self._wire.watch(self._readable)
        try:
            await large
        finally:
            self._large = None

    def _readable(self) -> None:
        try:
            small = self._inbound.read_small()
        except BlockingIOError:
            return
        except Exception as error:
            self._wire.watch(None)
            self._hand_over(error)
        else:
            if not small:
                self._wire.watch(None)
                self._hand_over(None)

    def _hand_over(self, error: Exception | None) -> None:
        if self._large is None or self._large.done():
            return
        if error is None:
            self._large.set_result(None)
        else:
            self._large.set_exception(error)

    def end(self) -> None:
        """Reading comes to its end."""
        self._ended = True
        self._wire.shut()
        self._hand_over(EOFError())
        for task in self._undecided:
            task.cancel()

    # ------------------------------------------------------------ called from the reading end

    def _tell(self, what: Callable[..., None], *arguments: object) -> None:
        if threading.get_ident() == self._loop_thread:
            what(*arguments)
        else:
            self._loop.call_soon_threadsafe(what, *arguments)

    def decide(self, transfer: Transfer) -> bool:
        try:
            return asyncio.run_coroutine_threadsafe(self._decide(transfer), self._loop).result()
        except StreamEnded:
            raise EOFError from None

    def go_on(self, number: int, offset: int) -> None:
        resume = peer_pb2.PushResume(transfer=number, offset=offset)
        self._tell(self.reply, peer_pb2.PushReply(resume=resume))

    def resumed(self, data_bytes: int) -> None:
        self._tell(self._resumed, data_bytes)

    def linked(self, data_bytes: int) -> None:
        self._tell(self._linked, data_bytes)

    def whole(self, transfer: Transfer, data: bytearray) -> None:
        self._tell(self._start, self._whole, transfer, data)

    def returned(self, credit_bytes: int) -> None:
        self._tell(self._returned, credit_bytes)

    def written(self, data_bytes: int) -> None:
        self._tell(self._written, data_bytes)

    def finish(self, transfer: Transfer) -> None:
        self._tell(self._start, self._finish, transfer)

    def failed(self, transfer: Transfer, error: RhinoError) -> None:
        self._tell(self._failed, transfer, error)

    # ------------------------------------------------------------ on the loop

    async def _decide(self, transfer: Transfer) -> bool:
        if self._ended:
            raise asyncio.CancelledError
        task = asyncio.ensure_future(self._receiver.decision(self._upstream, transfer))
        self._undecided.add(task)
        try:
            accepted = await task
        finally:
            self._undecided.discard(task)
        if accepted and transfer.number is not None:
            self._open[transfer.number] = transfer
            transfer.twins = await self._twins(transfer.entry)
        return accepted

    async def _twins(self, entry: FileEntry) -> list[StoredFile]:
        if not entry.same_as:
            return []
        same = [
            task for task, other in self._tasks.items() if (other.store, other.content) == (entry.store, entry.content)
        ]
        if same:  # it has come right before, and is not in the store yet
            await asyncio.wait(same)
        return self._store.twins(entry)

    def _start(self, work: Callable[..., Awaitable[None]], transfer: Transfer, *rest: object) -> None:
        if transfer.number is not None:
            self._open.pop(transfer.number, None)
        task = asyncio.ensure_future(self._guarded(transfer, work(transfer, *rest)))
        self._tasks[task] = transfer.entry
        task.add_done_callback(self._tasks.__delitem__)

    async def _guarded(self, transfer: Transfer, work: Awaitable[None]) -> None:
        """A failure goes to the machine."""
        try:
            await work
        except RhinoError as error:
            self._failed(transfer, error, last=True)
        except Exception as error:  # a bug: the sender is to try again, and people are to see it
            log.exception("file not received", extra={"file": transfer.entry.name})
            if transfer.number is not None:
                failure = ev.TransferFailed(transfer.number, ev.Refusal.STORAGE, repr(error))
                self._receiver.replication.post(failure)

    async def _whole(self, transfer: Transfer, data: bytearray) -> None:
        """A small file with all its bytes."""
        receiver, size = self._receiver, len(data)
        receiver.grants.received(self._grant, size)
        receiver.figures.received_bytes += size
        try:
            if await receiver.decision(self._upstream, transfer):
                await self._store.receive_whole(transfer.entry, (memoryview(data),))
                self._stored(transfer)
        finally:
            self._settled(size)

    async def _finish(self, transfer: Transfer) -> None:
        assert transfer.incoming is not None
        await self._store.finish_incoming(transfer.entry, transfer.incoming)
        self._stored(transfer)

    def _stored(self, transfer: Transfer) -> None:
        assert transfer.number is not None
        self._receiver.replication.post(ev.TransferStored(transfer.number))

    def _resumed(self, data_bytes: int) -> None:
        self._receiver.figures.resumed_bytes += data_bytes

    def _linked(self, data_bytes: int) -> None:
        self._receiver.figures.linked_bytes += data_bytes

    def _returned(self, credit_bytes: int) -> None:
        if not self._ended:
            self._receiver.grants.returned(self._grant, credit_bytes)
            self._receiver.feed_hungry()

    def _written(self, data_bytes: int) -> None:
        if not self._ended:
            self._receiver.grants.received(self._grant, data_bytes)
            self._receiver.figures.received_bytes += data_bytes
            self._settled(data_bytes)

    def _settled(self, data_bytes: int) -> None:
        if (credit := self._receiver.grants.settled(self._grant, data_bytes)) and not self._ended:
            self.give_credit(credit)
        self._receiver.feed_hungry()

    def _failed(self, transfer: Transfer, error: RhinoError, *, last: bool = False) -> None:
        log.warning("file not received", extra={"file": transfer.entry.name, "error": str(error)})
        assert transfer.number is not None
        self._open.pop(transfer.number, None)
        failure = ev.TransferFailed(transfer.number, _reason(error, last=last), str(error))
        self._receiver.replication.post(failure)


def _reason(error: RhinoError, *, last: bool) -> ev.Refusal:
    if isinstance(error, AlreadyThereError):
        return ev.Refusal.NAME_CONFLICT
    if isinstance(error, NoSpaceError) or not last or not isinstance(error, IntegrityError):
        return ev.Refusal.STORAGE
    return ev.Refusal.CHECKSUM
