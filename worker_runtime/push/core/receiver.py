"""The receiver's side of a push stream, without I/O: bytes in, events out.

The owner of the socket feeds `PushReceiver` with bytes, handles each event of `next_event`, and sends the bytes
returned by the other methods. Bytes of large files need not pass through a buffer of the decoder: the socket may write
them directly into `buffer`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from rhino_core.errors import LocalProtocolError, RemoteProtocolError, RhinoError
from rhino_core.rpc.convert import epoch_of, file_of, worker_of
from rhino_core.transitions import TransitionTable
from rhino_pb import peer_pb2
from worker_runtime.push.core.framing import MESSAGE_BYTES_MAX, Decoder, Memory, packed
from worker_runtime.push.core.incoming import (
    CreditReturned,
    DataReceived,
    DecisionDue,
    Event,
    FileBegun,
    FileCompleted,
    FileReceived,
    FileState,
    FileTrigger,
    IncomingFile,
)

PIECE_BYTES = 512 * 1024  # larger buffers do not fit into the processor's caches
FILES_MAX = 64  # begun and not complete; a link needs few, and they are not covered by its credit


class State(Enum):
    """The states of the stream."""

    NEW = "new"  # the sender does not know its credit yet
    OPEN = "open"  # a message is next
    IN_DATA = "in_data"  # bytes of a file are next
    CLOSED = "closed"


class Trigger(Enum):
    WELCOME = "welcome"
    DATA = "data"
    LAST_BYTE = "last_byte"
    END = "end"


TRANSITIONS = TransitionTable(
    State.NEW,
    {
        (State.NEW, Trigger.WELCOME): State.OPEN,
        (State.NEW, Trigger.END): State.CLOSED,
        (State.OPEN, Trigger.DATA): State.IN_DATA,
        (State.OPEN, Trigger.END): State.CLOSED,
        (State.IN_DATA, Trigger.LAST_BYTE): State.OPEN,
        (State.IN_DATA, Trigger.END): State.CLOSED,
        (State.CLOSED, Trigger.END): State.CLOSED,
    },
)


@dataclass(slots=True)
class _Data:
    """The data behind a message. `known_bytes`: how many of the next bytes an earlier attempt has left here.

    `target`: memory for the bytes of the next event, up to `filled`.
    """

    file: IncomingFile
    left_bytes: int
    known_bytes: int
    whole: bool  # a small file in one piece
    target: memoryview | None = None
    filled: int = 0


class PushReceiver:
    """One stream. Only `grant` may be called while another thread uses the object."""

    def __init__(self, memory: Memory) -> None:
        self.state = State.NEW
        self._decoder = Decoder(peer_pb2.PushFrame, "frame", memory)
        self._files: dict[int, IncomingFile] = {}  # incomplete files, by the sender's number
        self._granted_bytes = 0
        self._spent_bytes = 0  # received or returned; a counter of its own, because only the reading thread changes it
        self._data: _Data | None = None
        self._completed: IncomingFile | None = None  # to be reported by the next event
        self._buffer: memoryview | None = None

    # ------------------------------------------------------------ bytes out

    def grant(self, credit_bytes: int) -> bytes:
        """Adds credit. Send the returned message: the first one opens the stream."""
        self._granted_bytes += credit_bytes
        if self.state is State.NEW:
            self._go(Trigger.WELCOME)
            return packed(peer_pb2.PushReply(welcome=peer_pb2.PushWelcome(credit_bytes=credit_bytes)))
        return packed(peer_pb2.PushReply(credit=peer_pb2.PushCredit(bytes=credit_bytes)))

    def accept(self, file: IncomingFile, offset: int = 0) -> bytes:
        """Receives the file. `offset`: bytes here from an earlier attempt. Send the returned message."""
        file.go(FileTrigger.ACCEPT)
        file.received_bytes, file.resumed = offset, offset > 0
        if not offset and not file.ask_offset:
            return b""
        return packed(peer_pb2.PushReply(resume=peer_pb2.PushResume(transfer=file.transfer, offset=offset)))

    def discard(self, file: IncomingFile) -> None:
        """Throws away the rest of the file."""
        file.go(FileTrigger.DISCARD)

    def complete(self, file: IncomingFile) -> None:
        """The file needs no bytes: they are here under another name."""
        file.go(FileTrigger.COMPLETE)
        del self._files[file.transfer]

    # ------------------------------------------------------------ bytes in

    def receive(self, data: bytes) -> None:
        """Adds arrived bytes. Then ask for events."""
        self._decoder.feed(data)

    def buffer(self) -> memoryview | None:
        """Memory for the next bytes of a file, or None if a message is next. Fill it from its front, then call
        `filled`.

        Ask only after `next_event` has returned None.
        """
        data = self._data
        return None if data is None or data.target is None else data.target[data.filled :]

    def filled(self, count: int) -> None:
        """The first `count` bytes of `buffer` have arrived."""
        if self._data is None:
            raise LocalProtocolError("no data is due")
        self._data.filled += count

    def next_event(self) -> Event | None:
        """The next event, or None until more bytes have arrived. Handle it before you ask for the next one.

        Raises RemoteProtocolError if the sender has broken the protocol, UnavailableError if there is no memory for a
        large message. The stream is over then.
        """
        try:
            while self.state is not State.CLOSED:
                if self._data is None and self._completed is None:
                    if (found := self._decoder.message()) is None:
                        return None
                    event = self._frame(*found)
                elif (event := self._data_event()) is None and self._data is not None:
                    return None
                if event is not None:
                    return event
        except RhinoError:
            self._go(Trigger.END)
            raise
        return None

    def close(self) -> None:
        """The stream has ended."""
        self._go(Trigger.END)
        self._decoder.close()

    # ------------------------------------------------------------ what the ends look at

    @property
    def credit_bytes(self) -> int:
        """The sender's credit after it has received all replies."""
        return self._granted_bytes - self._spent_bytes

    @property
    def busy(self) -> bool:
        """Whether bytes of files are due, or events about them."""
        if self._data is not None or self._completed is not None:
            return True
        return any(file.state is not FileState.DISCARDED for file in self._files.values())

    @property
    def messages(self) -> int:
        return self._decoder.messages

    @property
    def in_message(self) -> bool:
        """Whether part of a message is here."""
        return self._decoder.buffered_bytes > 0

    @property
    def unfinished(self) -> bool:
        """Whether part of a message, or of the data behind it, is here."""
        return self._data is not None or self._decoder.buffered_bytes > 0

    @property
    def missing_bytes(self) -> int:
        return self._decoder.missing_bytes

    # ------------------------------------------------------------ inside

    def _go(self, trigger: Trigger) -> None:
        self.state = TRANSITIONS.next(self.state, trigger)

    def _data_event(self) -> Event | None:
        """The next event about bytes of a file. None if they are not here yet, or if there are no more of them."""
        if (file := self._completed) is not None:
            self._completed = None
            if file.state is not FileState.ACCEPTED:
                return None
            file.go(FileTrigger.COMPLETE)
            return FileCompleted(file)
        data = self._data
        assert data is not None
        if data.left_bytes:
            return self._piece(data)
        self._end_of_data(data.file)  # a message with no data behind it
        return None

    def _frame(self, frame: peer_pb2.PushFrame, message_bytes: int, data_bytes: int) -> Event | None:
        if message_bytes > MESSAGE_BYTES_MAX and not frame.begin.file.name.endswith((".zip", ".changelog")):
            raise RemoteProtocolError(f"a message of {message_bytes} bytes that announces no zip or changelog")
        match frame.WhichOneof("frame"):
            case "begin" if data_bytes == 0:
                return self._begin(frame.begin)
            case "data":
                return self._begin_data(frame.data, data_bytes)
            case "returned" if data_bytes == 0:
                self._spend(frame.returned.bytes)
                return CreditReturned(frame.returned.bytes)
            case other:
                raise RemoteProtocolError(f"unexpected frame {other} with {data_bytes} bytes of data in a push stream")

    def _begin(self, message: peer_pb2.PushBegin) -> Event | None:
        chain = tuple(worker_of(worker) for worker in message.chain)
        file = IncomingFile(
            message.transfer, file_of(message.file), epoch_of(message.epoch), chain, ask_offset=message.ask_offset
        )
        if file.entry.size_bytes == 0:  # no data follows
            file.go(FileTrigger.COMPLETE)
            return FileReceived(file, bytearray())
        if len(self._files) >= FILES_MAX:
            self._forget_unwanted()
        self._files[file.transfer] = file
        return FileBegun(file) if file.ask_offset or file.entry.size_bytes > PIECE_BYTES else None

    def _forget_unwanted(self) -> None:
        """There are too many incomplete files: forget unwanted ones.

        A sender stops in the middle of a file once it learns that the file is not wanted. After it has begun many other
        files, everything on its way has arrived. So the oldest unwanted files can be forgotten. Raises
        RemoteProtocolError if too many files are wanted.
        """
        unwanted = [number for number, file in self._files.items() if file.state is FileState.DISCARDED]
        for number in unwanted[: -FILES_MAX // 2]:
            del self._files[number]
        if len(self._files) >= FILES_MAX:
            raise RemoteProtocolError(f"more than {FILES_MAX} transfers at the same time")

    def _begin_data(self, message: peer_pb2.PushData, size: int) -> Event | None:
        file = self._files.get(message.transfer)
        if file is None:
            raise RemoteProtocolError(f"data of transfer {message.transfer}, which has not begun or is complete")
        known = min(size, max(0, file.received_bytes - message.offset)) if file.resumed else 0
        if message.offset + known != file.received_bytes and known < size:
            raise RemoteProtocolError(f"{size} bytes at {message.offset}, expected {file.received_bytes}")
        if message.offset + size > file.entry.size_bytes:
            raise RemoteProtocolError(f"{size} bytes at {message.offset} of {file.entry.size_bytes}")
        self._spend(size)
        self._go(Trigger.DATA)
        undecided = file.state is FileState.ANNOUNCED
        whole = undecided and size == file.entry.size_bytes <= PIECE_BYTES
        self._data = _Data(file, size, known, whole)
        return DecisionDue(file) if undecided and not whole else None

    def _spend(self, size: int) -> None:
        credit = self.credit_bytes
        if size > credit:
            raise RemoteProtocolError(f"{size} bytes sent with a credit of {credit}")
        self._spent_bytes += size

    def _piece(self, data: _Data) -> Event | None:
        """The next bytes of a file, if they are here. Their number does not depend on how they arrived."""
        if data.target is None:
            data.target = self._target(data)
        if data.filled < len(data.target):
            data.filled += self._decoder.take(data.target[data.filled :])
            if data.filled < len(data.target):
                return None
        piece, file = data.target, data.file
        data.target, data.filled = None, 0
        data.left_bytes -= len(piece)
        if data.whole:
            del self._files[file.transfer]
            file.go(FileTrigger.COMPLETE)
            self._end_of_data(file)
            assert isinstance(piece.obj, bytearray)
            return FileReceived(file, piece.obj)
        known = data.known_bytes > 0
        if known:
            data.known_bytes -= len(piece)
        else:
            file.received_bytes += len(piece)
        if not data.left_bytes:
            self._end_of_data(file)
        return DataReceived(file, piece, wanted=not known and file.state is FileState.ACCEPTED)

    def _target(self, data: _Data) -> memoryview:
        if data.whole:
            return memoryview(bytearray(data.left_bytes))
        if data.file.state is FileState.ANNOUNCED:
            raise LocalProtocolError(f"{data.file.entry.name}: neither accepted nor discarded")
        if self._buffer is None:
            self._buffer = memoryview(bytearray(PIECE_BYTES))
        return self._buffer[: min(data.known_bytes or data.left_bytes, PIECE_BYTES)]

    def _end_of_data(self, file: IncomingFile) -> None:
        self._data = None
        self._go(Trigger.LAST_BYTE)
        if file.received_bytes == file.entry.size_bytes and self._files.get(file.transfer) is file:
            del self._files[file.transfer]
            self._completed = file
