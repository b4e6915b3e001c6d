"""The sender's side of a push stream, without I/O: offers and replies in, frames and events out.

Files of several groups take turns part by part, so a large file of one group never delays the others. All parts stay
within the receiver's credit (Rhino 4.2.2, phase 2).
"""

from __future__ import annotations

import itertools
from collections import deque
from dataclasses import dataclass
from enum import Enum

from rhino_core.errors import RemoteProtocolError
from rhino_core.ids import FileEntry
from rhino_core.rpc.convert import epoch_to_pb, file_to_pb, worker_to_pb
from rhino_core.transitions import TransitionTable
from rhino_pb import peer_pb2
from worker_runtime.codec import ack_of, refusal_of
from worker_runtime.protocol import events as ev
from worker_runtime.protocol.credit import SendWindow
from worker_runtime.push.core.framing import Decoder, packed
from worker_runtime.push.core.offers import Key, OfferQueue

GROUPS_AT_ONCE = 4  # groups whose files take turns on one stream


class State(Enum):
    """The states of the stream."""

    AWAIT_WELCOME = "await_welcome"
    OPEN = "open"
    CLOSED = "closed"


class Trigger(Enum):
    WELCOME = "welcome"
    REPLY = "another_reply"
    BROKEN = "broken"  # the receiver says that this worker has broken the protocol
    END = "end"


TRANSITIONS = TransitionTable(
    State.AWAIT_WELCOME,
    {
        (State.AWAIT_WELCOME, Trigger.WELCOME): State.OPEN,
        (State.AWAIT_WELCOME, Trigger.BROKEN): State.CLOSED,
        (State.AWAIT_WELCOME, Trigger.END): State.CLOSED,
        (State.OPEN, Trigger.REPLY): State.OPEN,
        (State.OPEN, Trigger.BROKEN): State.CLOSED,
        (State.OPEN, Trigger.END): State.CLOSED,
        (State.CLOSED, Trigger.END): State.CLOSED,
    },
)


_TRIGGERS = {"welcome": Trigger.WELCOME, "broken": Trigger.BROKEN}


class FileState(Enum):
    """The states of one file during its transfer."""

    ASKING = "asking"  # its bytes wait until the receiver has reported where to begin
    SENDING = "sending"
    UNWANTED = "unwanted"  # the receiver has the file, or has refused it


class FileTrigger(Enum):
    OFFSET = "offset"
    SETTLED = "acknowledged_or_refused"


FILE_TRANSITIONS = TransitionTable(
    FileState.ASKING,
    {
        (FileState.ASKING, FileTrigger.OFFSET): FileState.SENDING,
        (FileState.ASKING, FileTrigger.SETTLED): FileState.UNWANTED,
        (FileState.SENDING, FileTrigger.OFFSET): FileState.SENDING,
        (FileState.SENDING, FileTrigger.SETTLED): FileState.UNWANTED,
        (FileState.UNWANTED, FileTrigger.OFFSET): FileState.UNWANTED,
        (FileState.UNWANTED, FileTrigger.SETTLED): FileState.UNWANTED,
    },
)


@dataclass(slots=True, eq=False)
class OutgoingFile:
    """A file under way. `begin`: its first frame, until it is sent. The bytes before `offset` are sent."""

    transfer: int
    entry: FileEntry
    begin: bytes
    state: FileState
    offset: int = 0
    resume_at: int = 0  # offset reported by the receiver, for the next part

    @property
    def key(self) -> Key:
        return self.entry.store, self.entry.name

    @property
    def done(self) -> bool:
        return self.state is FileState.UNWANTED or (self.offset == self.entry.size_bytes and not self.begin)

    def go(self, trigger: FileTrigger) -> None:
        self.state = FILE_TRANSITIONS.next(self.state, trigger)

    def skip_known(self) -> None:
        """Between parts: moves to the receiver's reported offset."""
        self.offset = max(self.offset, self.resume_at)


@dataclass(frozen=True, slots=True)
class Part:
    """`size` bytes of a file from `offset`, and the frames before them."""

    head: bytes
    offset: int
    size: int


# ---------------------------------------------------------------- events


@dataclass(frozen=True, slots=True)
class Welcomed:
    """Files can be sent."""


@dataclass(frozen=True, slots=True)
class Unblocked:
    """More credit has arrived, or a file can continue or is no longer wanted: ask for `next_file` again."""


Event = Welcomed | Unblocked | ev.AckReceived | ev.RefusalReceived


# ---------------------------------------------------------------- the core


class PushSender:
    """One stream to the worker `peer`."""

    def __init__(self, peer: str) -> None:
        self.state = State.AWAIT_WELCOME
        self._peer = peer
        self._decoder = Decoder(peer_pb2.PushReply, "reply")
        self._window = SendWindow()
        self._queue = OfferQueue()
        self._files: deque[OutgoingFile] = deque()  # whose turn it is comes first
        self._transfers = itertools.count(1)
        self._ended: list[ev.Sent] = []  # sent to their ends since the last `progress`

    # ------------------------------------------------------------ offers in

    def offer(self, offer: ev.OfferFile) -> None:
        """Queue an offer. It replaces an older one of the same file."""
        self._queue.put(offer)

    def withdraw(self, key: Key) -> bool:
        """Removes a queued offer. Returns whether the file is under way: only the end of the stream stops it."""
        self._queue.discard(key)
        return any(file.key == key and not file.done for file in self._files)

    def next_offer(self) -> ev.OfferFile | None:
        """The offer to `begin` now, if any. It leaves the queue."""
        if len(self._files) >= GROUPS_AT_ONCE or not self._queue:
            return None
        return self._queue.pop({file.entry.store.group for file in self._files})

    def begin(self, offer: ev.OfferFile, *, ask_offset: bool) -> OutgoingFile:
        """Lets the file take its turns. `ask_offset`: the receiver may have bytes of it."""
        transfer = next(self._transfers)
        state = FileState.ASKING if ask_offset else FileState.SENDING
        file = OutgoingFile(transfer, offer.entry, _begin_frame(transfer, offer, ask_offset=ask_offset), state)
        self._files.append(file)
        return file

    # ------------------------------------------------------------ frames out

    @property
    def idle(self) -> bool:
        """Whether no file is under way."""
        return not self._files

    def next_file(self) -> OutgoingFile | None:
        """The next file in turn, or None if all wait for the receiver. It goes to the end of the line.

        If it is `done` now or after its `part`, `end` it.
        """
        for file in self._files:
            if file.done or file.begin or file.state is not FileState.ASKING:
                break
        else:
            return None
        if not self._window.available_bytes and not file.done and file.state is not FileState.ASKING:
            return None
        self._files.remove(file)
        self._files.append(file)
        return file

    def part(self, file: OutgoingFile, bytes_max: int) -> Part:
        """The next part of the file, within the credit. The size is 0 while the file is ASKING."""
        left = 0 if file.state is FileState.ASKING else file.entry.size_bytes - file.offset
        size, offset = self._window.take(min(bytes_max, left)), file.offset
        head = file.begin
        if size:
            head += _data_frame(file.transfer, offset, size)
        file.begin = b""
        file.offset += size
        return Part(head, offset, size)

    def end(self, file: OutgoingFile) -> None:
        """The file needs no more turns."""
        self._files.remove(file)
        if file.offset == file.entry.size_bytes:
            self._ended.append(ev.Sent(*file.key, file.offset))

    def progress(self) -> tuple[ev.Sent, ...]:
        """The files under way, and those ended since the last call."""
        ended, self._ended = self._ended, []
        return *ended, *(ev.Sent(*file.key, file.offset) for file in self._files)

    def may_send_whole(self, size_bytes: int) -> bool:
        """Whether a file can be sent before everything else, because there is nothing else."""
        open_ = self.state is State.OPEN
        return open_ and not self._files and not self._queue and size_bytes <= self._window.available_bytes

    def whole(self, offer: ev.OfferFile) -> bytes:
        """The frames before the bytes of a whole file. All of it is sent at once (see `may_send_whole`)."""
        transfer, size = next(self._transfers), self._window.take(offer.entry.size_bytes)
        begin = _begin_frame(transfer, offer, ask_offset=False)
        self._ended.append(ev.Sent(offer.entry.store, offer.entry.name, size))
        return begin + _data_frame(transfer, 0, size) if size else begin

    def return_credit(self, keep_bytes: int) -> bytes:
        """The frame to return all credit but `keep_bytes`, because there is nothing to send; perhaps empty."""
        back = self._window.give_back(keep_bytes)
        return packed(peer_pb2.PushFrame(returned=peer_pb2.PushReturn(bytes=back))) if back else b""

    def close(self) -> list[OutgoingFile]:
        """The stream has ended. Returns the files under way."""
        self.state = TRANSITIONS.next(self.state, Trigger.END)
        files = list(self._files)
        self._files.clear()
        return files

    # ------------------------------------------------------------ replies in

    def receive(self, data: bytes) -> None:
        """Adds arrived bytes. Then ask for events."""
        self._decoder.feed(data)

    def next_event(self) -> Event | None:
        """The next event, or None until more bytes have arrived. Raises RemoteProtocolError."""
        while (found := self._decoder.message()) is not None:
            reply, _, data_bytes = found
            if data_bytes:
                raise RemoteProtocolError(f"{data_bytes} bytes of data behind a reply")
            if (event := self._reply(reply)) is not None:
                return event
        return None

    def _reply(self, reply: peer_pb2.PushReply) -> Event | None:
        kind = reply.WhichOneof("reply")
        following = TRANSITIONS.rows.get((self.state, _TRIGGERS.get(str(kind), Trigger.REPLY)))
        if kind is None or following is None:
            raise RemoteProtocolError(f"unexpected reply {kind}")
        self.state = following
        match kind:
            case "welcome":
                self._window.give(reply.welcome.credit_bytes)
                return Welcomed()
            case "credit":
                self._window.give(reply.credit.bytes)
            case "ack":
                ack = ack_of(self._peer, reply.ack)
                if ack.member.worker_id == self._peer:
                    self._settle((ack.store, ack.name))
                return ack
            case "refusal":
                refusal = refusal_of(self._peer, reply.refusal)
                self._settle((refusal.store, refusal.name))
                return refusal
            case "resume":
                self._resume(reply.resume)
            case "broken":
                raise RemoteProtocolError(f"{self._peer}: {reply.broken.message}")
        return Unblocked()

    def _resume(self, message: peer_pb2.PushResume) -> None:
        """The receiver has the bytes before the offset. A part of the file may be on its way now."""
        for file in self._files:
            if file.transfer == message.transfer:
                file.go(FileTrigger.OFFSET)
                file.resume_at = min(message.offset, file.entry.size_bytes)

    def _settle(self, key: Key) -> None:
        """The receiver has the file or does not want it: do not send the rest."""
        for file in self._files:
            if file.key == key:
                file.go(FileTrigger.SETTLED)


def _begin_frame(transfer: int, offer: ev.OfferFile, *, ask_offset: bool) -> bytes:
    begin = peer_pb2.PushBegin(
        transfer=transfer,
        file=file_to_pb(offer.entry),
        epoch=epoch_to_pb(offer.epoch),
        chain=[worker_to_pb(worker) for worker in offer.chain],
        ask_offset=ask_offset,
    )
    return packed(peer_pb2.PushFrame(begin=begin))


def _data_frame(transfer: int, offset: int, size: int) -> bytes:
    return packed(peer_pb2.PushFrame(data=peer_pb2.PushData(transfer=transfer, offset=offset)), size)
