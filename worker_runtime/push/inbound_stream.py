"""One inbound push stream on the event loop: it reads small files, finishes all files, and returns credit.

Credit returns when its bytes are on disk (Rhino 4.2.2, phase 2). A thread reads large files (inbound.py).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from concurrent.futures import CancelledError as StreamEnded
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Protocol

from rhino_core.errors import AlreadyThereError, IntegrityError, NoSpaceError, RhinoError
from rhino_core.ids import FileEntry, Lane
from rhino_pb import peer_pb2
from worker_runtime.protocol import events as ev
from worker_runtime.protocol.credit import GrantPool
from worker_runtime.push import inbound
from worker_runtime.push.alarms import Alarms, address_of
from worker_runtime.push.connection import Connection
from worker_runtime.push.core.framing import packed
from worker_runtime.push.core.incoming import CreditReturned, Event, FileReceived, IncomingFile
from worker_runtime.push.core.receiver import PushReceiver
from worker_runtime.push.core.records import TamperedError
from worker_runtime.push.inbound import BytesSettled, FileWritten, Inbound, Report, Resumed, WriteFailed
from worker_runtime.push.message_memory import MessageMemory
from worker_runtime.replication import Replication
from worker_runtime.statistics import Statistics
from worker_runtime.storage.disk.incoming import Incoming
from worker_runtime.storage.disk.threads import run_in
from worker_runtime.storage.index.stored_file import StoredFile

log = logging.getLogger(__name__)


class Streams(Protocol):
    """All inbound streams of the sidecar, and their shared parts (push/receiver.py)."""

    replication: Replication
    statistics: Statistics
    grants: GrantPool
    alarms: Alarms
    memory: MessageMemory

    async def decision(self, stream: InboundStream, file: IncomingFile) -> int | None: ...
    def left(self, stream: InboundStream) -> None: ...
    def top_up_starved(self) -> None: ...


class InboundStream:
    """`EventLoop` of its reading end."""

    def __init__(self, receiver: Streams, connection: Connection, upstream: str, lane: Lane, grant: int) -> None:
        self._receiver = receiver
        self.connection = connection
        self.upstream = upstream
        self.lane = lane
        self._grant = grant
        self._store = receiver.replication.store
        self._core = PushReceiver(receiver.memory)
        self._inbound = Inbound(connection, self._core, self._store.incoming, self)
        self._deadline: asyncio.TimerHandle | None = None  # of a message or small file that has arrived in part
        self._progress: int | None = None  # the message that the deadline is for
        self._loop = asyncio.get_running_loop()
        self._large: asyncio.Future[Event] | None = None  # while the loop reads: gets the first event for a thread
        self._tasks: dict[asyncio.Task[None], FileEntry] = {}  # files being finished
        self.undecided: set[asyncio.Future[bool]] = set()  # questions to the machine that it has not answered
        self._open: dict[int, IncomingFile] = {}  # accepted, with bytes on their way
        self.read = asyncio.Event()  # set when reading has ended: unfinished files can then be resumed
        self.ended = False

    def give_credit(self, credit_bytes: int) -> None:
        """The core learns of the credit before the sender does."""
        self.connection.post(self._core.grant(credit_bytes))

    async def run(self, credit_bytes: int) -> None:
        """Reads until the sender has ended the stream or has broken the protocol.

        Then finishes the complete files.
        """
        pool = ThreadPoolExecutor(1, thread_name_prefix=f"from-{self.upstream}")
        self.give_credit(credit_bytes)
        reading = asyncio.ensure_future(self._read(pool))
        try:
            await asyncio.shield(reading)
        except RhinoError as error:
            if isinstance(error, TamperedError):
                self._receiver.alarms.tampered(self.upstream, self.lane, error, address_of(self.connection.sock))
            log.warning("push stream refused", extra={"peer": self.upstream, "error": str(error)})
            self.connection.post(packed(peer_pb2.PushReply(broken=peer_pb2.PushBroken(message=str(error)))))
        finally:
            self.end()
            await asyncio.wait({reading})
            pool.shutdown()
            self._receiver.left(self)
            self.read.set()
            for number in self._open:
                self._receiver.replication.post(ev.TransferFailed(number, None))
            if self._tasks:
                await asyncio.wait(self._tasks)  # their bytes are in memory, within this stream's credit
            self.connection.close()

    def end(self) -> None:
        """Ends the reading."""
        self.ended = True
        self.connection.shut()
        self._stop_reading(EOFError())
        for question in self.undecided:
            question.cancel()

    # ------------------------------------------------------------ reading

    async def _read(self, pool: ThreadPoolExecutor) -> None:
        """Reads until the stream ends. Raises RemoteProtocolError if the sender breaks the protocol."""
        try:
            if self.lane is Lane.BULK:
                await run_in(pool, self._inbound.run)
            while True:
                event = await self._read_small()
                await run_in(pool, partial(self._inbound.read_large, event))
        except (EOFError, OSError):
            return  # the sender reconnects and offers again what still matters
        except TamperedError:
            if not self.ended:  # otherwise this end has cut the connection
                raise
        finally:
            await run_in(pool, self._inbound.close)

    async def _read_small(self) -> Event:
        """Reads on the event loop until a thread has to. Returns the thread's first event."""
        if self.ended:
            raise EOFError
        self._core.receive(self.connection.opener.feed(b""))  # what a thread has left
        if (event := self._handle_small()) is not None:
            return event
        self._set_deadline()
        self._large = self._loop.create_future()
        self.connection.watch(self._readable)
        try:
            return await self._large
        finally:
            self._large = self._progress = None
            self._cancel_deadline()

    def _handle_small(self) -> Event | None:
        """Handles the events of the core's bytes. Returns the first event for a thread, if any.

        Raises RemoteProtocolError.
        """
        while (event := self._core.next_event()) is not None:
            if not isinstance(event, (FileReceived, CreditReturned)):
                return event
            self._handle(event)
        return None

    def _readable(self) -> None:
        try:
            self._core.receive(self.connection.read())
            event = self._handle_small()
        except BlockingIOError:
            return
        except Exception as error:
            self._stop_reading(error)
        else:
            if event is not None:
                self._stop_reading(event)
            elif self._progress is not None or self._unfinished:
                self._set_deadline()

    def _stop_reading(self, why: Event | Exception) -> None:
        if self._large is None or self._large.done():
            return
        self.connection.watch(None)
        if isinstance(why, Exception):
            self._large.set_exception(why)
        else:
            self._large.set_result(why)

    @property
    def _unfinished(self) -> bool:
        return self._core.unfinished or self.connection.opener.missing_bytes > 0

    def _set_deadline(self) -> None:
        """A partly arrived message or small file has to be complete within MESSAGE_S."""
        progress = self._core.messages if self._unfinished else None
        if progress is not None and progress == self._progress:
            return
        self._progress = progress
        self._cancel_deadline()
        if progress is not None:
            self._deadline = self._loop.call_later(inbound.MESSAGE_S, self._stop_reading, inbound.too_slow())

    def _cancel_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    # ------------------------------------------------------------ called by a thread

    def report(self, report: Report) -> None:
        self._loop.call_soon_threadsafe(self._handle, report)

    def decide(self, file: IncomingFile) -> list[StoredFile] | None:
        try:
            return asyncio.run_coroutine_threadsafe(self._decide(file), self._loop).result()
        except StreamEnded:
            raise EOFError from None

    # ------------------------------------------------------------ on the event loop

    def _handle(self, report: Report) -> None:
        match report:
            case FileReceived(file, data):
                self._start(file, self._store_whole(file, data))
            case BytesSettled(data_bytes):
                self._settled_by_thread(data_bytes)
            case FileWritten(file, incoming, linked):
                if linked:
                    self._receiver.statistics.linked_bytes += file.entry.size_bytes
                self._start(file, self._finish(file, incoming))
            case Resumed(reply, data_bytes):
                self._receiver.statistics.resumed_bytes += data_bytes
                self.connection.post(reply)
            case CreditReturned(credit_bytes):
                if not self.ended:
                    self._receiver.grants.returned(self._grant, credit_bytes)
                    self._receiver.top_up_starved()
            case WriteFailed(file, error):
                self._failed(file, error)

    async def _decide(self, file: IncomingFile) -> list[StoredFile] | None:
        if self.ended:
            raise asyncio.CancelledError
        if (number := await self._receiver.decision(self, file)) is None:
            return None
        self._open[number] = file
        return await self._twins(file.entry)

    async def _twins(self, entry: FileEntry) -> list[StoredFile]:
        if not entry.same_as and not entry.branch_of:
            return []
        same = [
            task for task, other in self._tasks.items() if (other.store, other.content) == (entry.store, entry.content)
        ]
        if same:  # the twin arrived just before and is not in the store yet
            await asyncio.wait(same)
        return self._store.files.twins(entry)

    def _start(self, file: IncomingFile, work: Coroutine[Any, Any, None]) -> None:
        if file.number is not None:
            self._open.pop(file.number, None)
        task = asyncio.ensure_future(work)
        self._tasks[task] = file.entry
        task.add_done_callback(partial(self._done, file))

    def _done(self, file: IncomingFile, task: asyncio.Task[None]) -> None:
        """The work on the file has ended. Report a failure to the machine."""
        del self._tasks[task]
        error = None if task.cancelled() else task.exception()
        if isinstance(error, RhinoError):
            self._failed(file, error, last=True)
        elif error is not None:  # a bug: let the sender try again, and log it for people
            log.error("file not received", extra={"file": file.entry.name}, exc_info=error)
            if file.number is not None:
                failure = ev.TransferFailed(file.number, ev.Refusal.STORAGE, repr(error))
                self._receiver.replication.post(failure)

    async def _store_whole(self, file: IncomingFile, data: bytearray) -> None:
        receiver, size = self._receiver, len(data)
        receiver.grants.received(self._grant, size)
        receiver.statistics.received_bytes += size
        try:
            if (number := await receiver.decision(self, file)) is not None:
                await self._store.received.receive_whole(file.entry, (memoryview(data),))
                receiver.replication.post(ev.TransferStored(number))
        finally:
            self._settled(size)

    async def _finish(self, file: IncomingFile, incoming: Incoming) -> None:
        assert file.number is not None
        await self._store.received.finish(file.entry, incoming)
        self._receiver.replication.post(ev.TransferStored(file.number))

    def _settled_by_thread(self, data_bytes: int) -> None:
        if not self.ended:
            self._receiver.grants.received(self._grant, data_bytes)
            self._receiver.statistics.received_bytes += data_bytes
            self._settled(data_bytes)

    def _settled(self, data_bytes: int) -> None:
        if (credit := self._receiver.grants.settled(self._grant, data_bytes)) and not self.ended:
            self.give_credit(credit)
        self._receiver.top_up_starved()

    def _failed(self, file: IncomingFile, error: RhinoError, *, last: bool = False) -> None:
        log.warning("file not received", extra={"file": file.entry.name, "error": str(error)})
        assert file.number is not None
        self._open.pop(file.number, None)
        failure = ev.TransferFailed(file.number, _reason(error, last=last), str(error))
        self._receiver.replication.post(failure)


def _reason(error: RhinoError, *, last: bool) -> ev.Refusal:
    if isinstance(error, AlreadyThereError):
        return ev.Refusal.NAME_CONFLICT
    if isinstance(error, NoSpaceError) or not last or not isinstance(error, IntegrityError):
        return ev.Refusal.STORAGE
    return ev.Refusal.CHECKSUM
