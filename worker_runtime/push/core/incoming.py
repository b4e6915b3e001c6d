"""Files on their way in over a push stream, and the events of `PushReceiver` about them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from rhino_core.ids import Epoch, FileEntry, Worker
from rhino_core.transitions import TransitionTable


class FileState(Enum):
    """The states of one announced file."""

    ANNOUNCED = "announced"
    ACCEPTED = "accepted"
    DISCARDED = "discarded"  # further bytes are thrown away
    COMPLETE = "complete"


class FileTrigger(Enum):
    ACCEPT = "accept"
    DISCARD = "discard"
    COMPLETE = "complete"


FILE_TRANSITIONS = TransitionTable(
    FileState.ANNOUNCED,
    {
        (FileState.ANNOUNCED, FileTrigger.ACCEPT): FileState.ACCEPTED,
        (FileState.ANNOUNCED, FileTrigger.DISCARD): FileState.DISCARDED,
        # A small file came in one piece, or the bytes are here under another name.
        (FileState.ANNOUNCED, FileTrigger.COMPLETE): FileState.COMPLETE,
        (FileState.ACCEPTED, FileTrigger.DISCARD): FileState.DISCARDED,
        (FileState.ACCEPTED, FileTrigger.COMPLETE): FileState.COMPLETE,
    },
)


@dataclass(slots=True, eq=False)
class IncomingFile:
    """One announced file.

    `transfer` is the sender's number of it. `ask_offset`: the sender waits for the offset to begin at. `number`: of the
    transfer in the chain machine, once that has been asked; the core does not use it.
    """

    transfer: int
    entry: FileEntry
    epoch: Epoch
    chain: tuple[Worker, ...]
    ask_offset: bool
    state: FileState = FileState.ANNOUNCED
    received_bytes: int = 0
    resumed: bool = False  # bytes before `received_bytes` may still arrive, and are thrown away
    number: int | None = None

    def go(self, trigger: FileTrigger) -> None:
        self.state = FILE_TRANSITIONS.next(self.state, trigger)


# ---------------------------------------------------------------- events


@dataclass(frozen=True, slots=True)
class FileReceived:
    """All bytes of a small file are here, in one piece. Nobody has decided on the file yet."""

    file: IncomingFile
    data: bytearray


@dataclass(frozen=True, slots=True)
class FileBegun:
    """A large file, or one with an `ask_offset`. Call `accept`, `discard` or `complete`.

    This may wait until DecisionDue if the sender does not ask.
    """

    file: IncomingFile


@dataclass(frozen=True, slots=True)
class DecisionDue:
    """The first bytes of a file follow. Call `accept` or `discard` before the next event."""

    file: IncomingFile


@dataclass(frozen=True, slots=True)
class DataReceived:
    """Bytes of a file, in order. `data` is valid until the next call of the core.

    `wanted`: the file was accepted, and these bytes are not known from an earlier attempt.
    """

    file: IncomingFile
    data: memoryview
    wanted: bool


@dataclass(frozen=True, slots=True)
class FileCompleted:
    """The last bytes of an accepted file were in the event before."""

    file: IncomingFile


@dataclass(frozen=True, slots=True)
class CreditReturned:
    """The sender is idle and returns credit."""

    credit_bytes: int


Event = FileReceived | FileBegun | DecisionDue | DataReceived | FileCompleted | CreditReturned
