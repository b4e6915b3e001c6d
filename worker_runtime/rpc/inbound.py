"""The reading end of one inbound push stream: reads frames in order and brings the bytes of large files to disk.

A thread does it. It holds one buffer, and nothing else that grows: while it writes, the connection fills up and the
sender waits. Small files go to the event loop in one piece, within the stream's credit. Decisions and everything that
counts happen there. While there are only small files the event loop may read them itself, which spares a commit the
way from one thread to the other.
"""

from __future__ import annotations

import contextlib
import logging
import socket
from dataclasses import dataclass, field
from typing import Protocol

from rhino.errors import RemoteProtocolError, RhinoError
from rhino.ids import Epoch, FileEntry, Worker
from rhino.rpc.convert import epoch_of, file_of, worker_of
from rhino_pb import peer_pb2
from worker_runtime.rpc.wire import FrameReader
from worker_runtime.storage.files import Incoming
from worker_runtime.storage.index import StoredFile
from worker_runtime.storage.store import Store

log = logging.getLogger(__name__)
BUFFER_BYTES = 512 * 1024  # larger ones fall out of the processor's caches
TRANSFERS_MAX = 64  # begun and not complete; a link has a few, and they are not within its credit
NOTE_BYTES = 4 * 1024 * 1024  # written before the loop is told, unless the stream pauses or runs out of credit


@dataclass(slots=True)
class Transfer:
    """One announced file. `number` is the machine's, once it has been asked, and then `twins` are stored files with the
    same bytes; `over`: what still comes is discarded."""

    entry: FileEntry
    epoch: Epoch
    chain: tuple[Worker, ...]
    number: int | None = None
    twins: list[StoredFile] = field(default_factory=list)
    received_bytes: int = 0
    incoming: Incoming | None = None
    resumed: bool = False  # data before `received_bytes` may still come, and are thrown away
    over: bool = False

    @property
    def complete(self) -> bool:
        return self.received_bytes == self.entry.size_bytes


class Loop(Protocol):
    """The side of the stream on the event loop; to be called from the thread, or the loop when that reads."""

    def decide(self, transfer: Transfer) -> bool:
        """Waits for the machine's decision. Raises EOFError when the stream has ended meanwhile."""
        ...

    def go_on(self, number: int, offset: int) -> None:
        """Tells the sender where its transfer `number` is."""
        ...

    def resumed(self, data_bytes: int) -> None: ...
    def linked(self, data_bytes: int) -> None: ...
    def whole(self, transfer: Transfer, data: bytearray) -> None: ...
    def returned(self, credit_bytes: int) -> None: ...
    def written(self, data_bytes: int) -> None: ...
    def finish(self, transfer: Transfer) -> None: ...
    def failed(self, transfer: Transfer, error: RhinoError) -> None: ...


class Inbound:
    """`run`, or `read_small` on the loop and `read_large` in a thread in turns; then `close`. `grant` from anywhere."""

    def __init__(self, sock: socket.socket, store: Store, loop: Loop) -> None:
        self._store = store
        self._loop = loop
        self._reader = FrameReader(sock, self._note)
        self._buffer: memoryview | None = None
        self._transfers: dict[int, Transfer] = {}  # by the sender's number, until complete
        self._granted_bytes = 0
        self._received_bytes = 0  # or given back
        self._unnoted_bytes = 0

    def grant(self, credit_bytes: int) -> None:
        """To be called before the sender hears of it."""
        self._granted_bytes += credit_bytes

    def run(self) -> None:
        """In a thread: all of it. Raises EOFError when the stream ends, OSError, RemoteProtocolError."""
        while True:
            self._frame()

    def read_small(self) -> bool:
        """What has come, on the event loop, without waiting; false when the next file is one for `read_large`.

        Raises as `run`, and BlockingIOError when nothing has come.
        """
        self._reader.take_in()
        return self.read_ahead()

    def read_ahead(self) -> bool:
        """As `read_small`, of what was read before."""
        while (ahead := self._reader.ahead()) is not None:
            if not self._is_small(*ahead):
                return False
            if self._reader.data_bytes < ahead[1]:
                return True
            self._frame()
        return True

    def read_large(self) -> None:
        """In a thread: until no such file is under way. Raises as `run`."""
        self._frame()
        while any(not transfer.over for transfer in self._transfers.values()):
            self._frame()

    def close(self) -> None:
        """Blocks. Large unfinished files are kept for the next attempt, others thrown away."""
        for transfer in self._transfers.values():
            if transfer.incoming is not None and not transfer.over:
                with contextlib.suppress(RhinoError):  # noted by the disk; nothing depends on it
                    self._store.keep_partial(transfer.entry, transfer.incoming)

    def _is_small(self, frame: peer_pb2.PushFrame, data_bytes: int) -> bool:
        """Neither a thread is needed nor is anything wrong with it: what is here in one piece, or is going to be."""
        match frame.WhichOneof("frame"):
            case "begin" if data_bytes == 0:
                return frame.begin.file.size_bytes <= BUFFER_BYTES and not frame.begin.ask_offset
            case "data" if transfer := self._transfers.get(frame.data.transfer):
                return data_bytes == transfer.entry.size_bytes <= BUFFER_BYTES and transfer.number is None
            case kind:
                return kind == "returned" and data_bytes == 0

    def _frame(self) -> None:
        frame, data_bytes = self._reader.frame()
        match frame.WhichOneof("frame"):
            case "begin" if data_bytes == 0:
                self._begin(frame.begin)
            case "data":
                self._data(frame.data, data_bytes)
            case "returned" if data_bytes == 0:
                self._give_back(frame.returned.bytes)
            case other:
                raise RemoteProtocolError(f"unexpected frame {other} with {data_bytes} bytes of data in a push stream")

    def _begin(self, message: peer_pb2.PushBegin) -> None:
        chain = tuple(worker_of(worker) for worker in message.chain)
        transfer = Transfer(file_of(message.file), epoch_of(message.epoch), chain)
        if transfer.complete:  # an empty file: no data will come
            self._loop.whole(transfer, bytearray())
            return
        self._bound_transfers()
        self._transfers[message.transfer] = transfer
        if message.ask_offset or self._store.partials.has(transfer.entry):
            self._decide(transfer)
            if not transfer.over and not self._link(message.transfer, transfer):
                self._resume(message, transfer)

    def _bound_transfers(self) -> None:
        """A sender that hears that a file is not wanted stops in the middle of it; what was on its way has come by
        the time that it has begun many others. Raises RemoteProtocolError for too many that are wanted."""
        if len(self._transfers) < TRANSFERS_MAX:
            return
        over = [number for number, transfer in self._transfers.items() if transfer.over]
        for number in over[: -TRANSFERS_MAX // 2]:
            del self._transfers[number]
        if len(self._transfers) >= TRANSFERS_MAX:
            raise RemoteProtocolError(f"more than {TRANSFERS_MAX} transfers at the same time")

    def _decide(self, transfer: Transfer) -> None:
        transfer.over = not self._loop.decide(transfer)

    def _link(self, number: int, transfer: Transfer) -> bool:
        """Whether the bytes are here under another name; its sender hears that the file is stored, and sends none."""
        transfer.incoming = self._store.link_incoming(transfer.entry, transfer.twins)
        if transfer.incoming is None:
            return False
        transfer.received_bytes = transfer.entry.size_bytes
        del self._transfers[number]
        self._loop.linked(transfer.received_bytes)
        self._loop.finish(transfer)
        return True

    def _resume(self, message: peer_pb2.PushBegin, transfer: Transfer) -> None:
        """Goes on with what a broken attempt has left, and says so."""
        try:
            transfer.incoming = self._store.take_partial(transfer.entry)
        except RhinoError as error:  # the file is begun anew, and may be refused then
            log.warning("cannot go on with a file", extra={"file": transfer.entry.name, "error": str(error)})
        if transfer.incoming is not None:
            transfer.received_bytes, transfer.resumed = transfer.incoming.size_bytes, True
            self._loop.resumed(transfer.received_bytes)
        if message.ask_offset or transfer.resumed:
            self._loop.go_on(message.transfer, transfer.received_bytes)

    def _data(self, message: peer_pb2.PushData, size: int) -> None:
        transfer = self._transfers.get(message.transfer)
        if transfer is None:
            raise RemoteProtocolError(f"data of transfer {message.transfer}, which has not begun or is complete")
        known = min(size, max(0, transfer.received_bytes - message.offset)) if transfer.resumed else 0
        if message.offset + known != transfer.received_bytes and known < size:
            raise RemoteProtocolError(f"{size} bytes at {message.offset}, expected {transfer.received_bytes}")
        if message.offset + size > transfer.entry.size_bytes:
            raise RemoteProtocolError(f"{size} bytes at {message.offset} of {transfer.entry.size_bytes}")
        self._spend(size)
        if size == transfer.entry.size_bytes <= BUFFER_BYTES and transfer.number is None:
            data = bytearray(size)
            self._reader.data(memoryview(data))
            del self._transfers[message.transfer]
            self._loop.whole(transfer, data)
            return
        if transfer.number is None:
            self._decide(transfer)
        self._copy(transfer, known, size - known)
        if transfer.complete:
            del self._transfers[message.transfer]
            self._note()
            if not transfer.over:
                self._loop.finish(transfer)

    def _spend(self, size: int) -> None:
        credit = self._granted_bytes - self._received_bytes
        if size > credit:
            raise RemoteProtocolError(f"{size} bytes sent with a credit of {credit}")
        self._received_bytes += size

    def _give_back(self, credit_bytes: int) -> None:
        """An idle sender's credit; what it has sent before is told first."""
        self._spend(credit_bytes)
        self._note()
        self._loop.returned(credit_bytes)

    def _copy(self, transfer: Transfer, known: int, size: int) -> None:
        """From the connection to disk, or nowhere: the first `known` bytes are on disk already."""
        if self._buffer is None:
            self._buffer = memoryview(bytearray(BUFFER_BYTES))
        while known or size:
            piece = self._buffer[: min(known or size, BUFFER_BYTES)]
            self._reader.data(piece)
            if known:
                known -= len(piece)
            else:
                if not transfer.over:
                    self._write(transfer, piece)
                transfer.received_bytes += len(piece)
                size -= len(piece)
            self._unnoted_bytes += len(piece)
            if self._unnoted_bytes >= min(NOTE_BYTES, self._granted_bytes - self._received_bytes):
                self._note()

    def _write(self, transfer: Transfer, piece: memoryview) -> None:
        try:
            if transfer.incoming is None:
                transfer.incoming = self._store.begin_incoming(transfer.entry, (piece,))
            else:
                self._store.append_incoming(transfer.entry, transfer.incoming, (piece,))
        except RhinoError as error:
            self._drop(transfer)
            self._loop.failed(transfer, error)

    def _drop(self, transfer: Transfer) -> None:
        transfer.over = True
        if transfer.incoming is not None:
            with contextlib.suppress(RhinoError):  # a leftover goes at the next start
                self._store.drop_incoming(transfer.entry, transfer.incoming)

    def _note(self) -> None:
        if self._unnoted_bytes:
            self._loop.written(self._unnoted_bytes)
            self._unnoted_bytes = 0
