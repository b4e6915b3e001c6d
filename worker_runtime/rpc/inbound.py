"""The thread of one inbound push stream: reads frames in order and brings the bytes of large files to disk.

It holds one buffer, and nothing else that grows: while it writes, the connection fills up and the sender waits. Small
files go to the event loop in one piece, within the stream's credit. Decisions and everything that counts happen there.
"""

from __future__ import annotations

import contextlib
import socket
from dataclasses import dataclass
from typing import Protocol

from rhino.errors import RemoteProtocolError, RhinoError
from rhino.ids import Epoch, FileEntry, Worker
from rhino.rpc.convert import epoch_of, file_of, worker_of
from rhino_pb import peer_pb2
from worker_runtime.rpc.wire import FrameReader
from worker_runtime.storage.files import Incoming
from worker_runtime.storage.store import Store

BUFFER_BYTES = 512 * 1024  # larger ones fall out of the processor's caches
NOTE_BYTES = 1024 * 1024  # written before the loop is told, unless the stream pauses


@dataclass(slots=True)
class Transfer:
    """One announced file. `number` is the machine's, once it has been asked; `over`: what still comes is discarded."""

    entry: FileEntry
    epoch: Epoch
    chain: tuple[Worker, ...]
    number: int | None = None
    received_bytes: int = 0
    incoming: Incoming | None = None
    over: bool = False

    @property
    def complete(self) -> bool:
        return self.received_bytes == self.entry.size_bytes


class Loop(Protocol):
    """The side of the stream on the event loop; to be called from the thread."""

    def decide(self, transfer: Transfer) -> bool:
        """Waits for the machine's decision. Raises EOFError when the stream has ended meanwhile."""
        ...

    def whole(self, transfer: Transfer, data: bytearray) -> None: ...
    def written(self, data_bytes: int) -> None: ...
    def finish(self, transfer: Transfer) -> None: ...
    def failed(self, transfer: Transfer, error: RhinoError) -> None: ...


class InboundThread:
    """Call `run` in a thread of its own; `grant` may be called from any."""

    def __init__(self, sock: socket.socket, store: Store, loop: Loop) -> None:
        self._store = store
        self._loop = loop
        self._reader = FrameReader(sock, self._note)
        self._buffer: memoryview | None = None
        self._transfers: dict[int, Transfer] = {}  # by the sender's number, until complete
        self._granted_bytes = 0
        self._received_bytes = 0
        self._unnoted_bytes = 0

    def grant(self, credit_bytes: int) -> None:
        """To be called before the sender hears of it."""
        self._granted_bytes += credit_bytes

    def run(self) -> None:
        """Until the stream ends. Raises RemoteProtocolError when the sender breaks the protocol."""
        try:
            while True:
                self._frame()
        except (EOFError, OSError):
            return  # the sender connects again, and offers again what still matters
        finally:
            for transfer in self._transfers.values():
                self._drop(transfer)

    def _frame(self) -> None:
        frame, data_bytes = self._reader.frame()
        match frame.WhichOneof("frame"):
            case "begin" if data_bytes == 0:
                self._begin(frame.begin)
            case "data":
                self._data(frame.data, data_bytes)
            case other:
                raise RemoteProtocolError(f"unexpected frame {other} with {data_bytes} bytes of data in a push stream")

    def _begin(self, message: peer_pb2.PushBegin) -> None:
        chain = tuple(worker_of(worker) for worker in message.chain)
        transfer = Transfer(file_of(message.file), epoch_of(message.epoch), chain)
        if transfer.complete:  # an empty file: no data will come
            self._loop.whole(transfer, bytearray())
        else:
            self._transfers[message.transfer] = transfer

    def _data(self, message: peer_pb2.PushData, size: int) -> None:
        transfer = self._transfers.get(message.transfer)
        if transfer is None:
            raise RemoteProtocolError(f"data of transfer {message.transfer}, which has not begun or is complete")
        if message.offset != transfer.received_bytes or message.offset + size > transfer.entry.size_bytes:
            raise RemoteProtocolError(f"{size} bytes at {message.offset}, expected {transfer.received_bytes}")
        if self._received_bytes + size > self._granted_bytes:
            credit = self._granted_bytes - self._received_bytes
            raise RemoteProtocolError(f"{size} bytes sent with a credit of {credit}")
        self._received_bytes += size
        if size == transfer.entry.size_bytes <= BUFFER_BYTES:
            data = bytearray(size)
            self._reader.data(memoryview(data))
            del self._transfers[message.transfer]
            self._loop.whole(transfer, data)
            return
        if transfer.number is None:
            transfer.over = not self._loop.decide(transfer)
        self._copy(transfer, size)
        if transfer.complete:
            del self._transfers[message.transfer]
            if not transfer.over:
                self._loop.finish(transfer)

    def _copy(self, transfer: Transfer, size: int) -> None:
        """From the connection to disk, or nowhere."""
        if self._buffer is None:
            self._buffer = memoryview(bytearray(BUFFER_BYTES))
        while size:
            piece = self._buffer[: min(size, BUFFER_BYTES)]
            self._reader.data(piece)
            if not transfer.over:
                self._write(transfer, piece)
            transfer.received_bytes += len(piece)
            size -= len(piece)
            self._unnoted_bytes += len(piece)
            if self._unnoted_bytes >= NOTE_BYTES:
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
