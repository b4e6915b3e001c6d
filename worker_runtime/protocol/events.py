"""Events and effects of `ChainMachine` (protocol/chain/machine.py): closed unions of frozen dataclasses.

The caller changes the catalogue *before* it posts the event of the change. It executes effects in order: persist, then
send. A link to another worker is identified by (worker_id, lane). A broken link loses its whole queue. After the next
PeerConnected the machine offers everything again that still matters.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import NamedTuple

from rhino_core.errors import RhinoError
from rhino_core.ids import Epoch, FileEntry, GroupId, Lane, ReplicaGroup, StoreId, Worker


class Refusal(enum.Enum):
    """Why a receiver did not accept a pushed file."""

    STALE_EPOCH = "stale_epoch"  # the sender uses an older epoch than the receiver has seen
    CHECKSUM = "checksum"  # the bytes did not match: send the file again
    NAME_CONFLICT = "name_conflict"  # another file with this (store, name) is stored here: never send it again
    STORAGE = "storage"  # disk full or failing: try again later
    NOT_A_WRITER = "not_a_writer"  # the manager does not allow the sender: only a waiting commit tries again


# ---------------------------------------------------------------- events


@dataclass(frozen=True, slots=True)
class GroupAdopted:
    """The manager's current description of a group (from ResolveGroup or WatchGroups).

    The machine ignores an older epoch than the one it has seen.
    """

    group: ReplicaGroup


@dataclass(frozen=True, slots=True)
class GroupLeft:
    """The group no longer concerns this worker. Its files stay, if there are any: copies/excess.py forgets it, too."""

    group: GroupId


@dataclass(frozen=True, slots=True)
class FileStored:
    """A file is on disk, in the index and in the catalogue.

    `written`: an executor of this worker wrote the file (Add), so the machine pushes it down the chain. Otherwise
    catch-up or Prepare pulled it.
    """

    entry: FileEntry
    written: bool


@dataclass(frozen=True, slots=True)
class CommitRequested:
    """An executor of this worker has handed over a changelog or zip. The file is stored but hidden.

    The machine answers with exactly one CompleteCommit. `request` is unique. The commit fails after `patience_s`
    without progress of the store's files. The same file may come again (a retry).
    """

    request: int
    entry: FileEntry
    patience_s: float


@dataclass(frozen=True, slots=True)
class CommitAbandoned:
    """The caller of this request no longer waits. The file stays hidden. If nobody else waits, it is sent no more."""

    request: int


class Sent(NamedTuple):
    """So many bytes of this file have gone out on a link. It is under way, or has just been sent to its end."""

    store: StoreId
    name: str
    sent_bytes: int


@dataclass(frozen=True, slots=True)
class BytesSent:
    """The machine of worker `to` has taken bytes from the link of this lane since the last such event."""

    to: str
    lane: Lane
    files: tuple[Sent, ...]


@dataclass(frozen=True, slots=True)
class BytesFetched:
    """Another worker has fetched bytes of the group from here since the last such event."""

    group: GroupId


@dataclass(frozen=True, slots=True)
class BeginReceived:
    """`upstream` (worker_id) announces a file. The machine answers with exactly one of ReceiveFile and DiscardTransfer.

    The answer may come later: the machine may have to ask the manager first, for PARKED_S at most (chain/receiving.py).
    `transfer` is unique within this process. `chain` lists the members after this one, in order.
    """

    upstream: str
    transfer: int
    entry: FileEntry
    epoch: Epoch
    chain: tuple[Worker, ...]


@dataclass(frozen=True, slots=True)
class TransferStored:
    """All bytes of an accepted transfer are on disk and verified; the file is in the index and in the catalogue."""

    transfer: int


@dataclass(frozen=True, slots=True)
class TransferFailed:
    """An accepted transfer ended without a file, or the stream broke before the machine had decided.

    `reason` is CHECKSUM, NAME_CONFLICT or STORAGE, or None if the stream broke.
    """

    transfer: int
    reason: Refusal | None
    message: str = ""


@dataclass(frozen=True, slots=True)
class AckReceived:
    """`sender` (worker_id, the next worker in the chain) forwards an acknowledgement: `member` has stored the file
    under `epoch`.

    `holds`: the member has the whole closure of the file's version (always true for SST and log files).
    """

    sender: str
    store: StoreId
    name: str
    epoch: Epoch
    member: Worker
    holds: bool


@dataclass(frozen=True, slots=True)
class RefusalReceived:
    """`sender` reports a refusal of the file by `member`. `current_epoch` matters for STALE_EPOCH only."""

    sender: str
    store: StoreId
    name: str
    reason: Refusal
    current_epoch: Epoch
    message: str
    member: Worker


@dataclass(frozen=True, slots=True)
class WriterNamed:
    """The manager's answer to AskForWriter."""

    group: GroupId
    worker_id: str
    allowed: bool


@dataclass(frozen=True, slots=True)
class PeerConnected:
    """The push link to this worker and lane is open (again). Nothing is queued on it."""

    worker_id: str
    lane: Lane


@dataclass(frozen=True, slots=True)
class PeerDisconnected:
    """The link broke. Its queue and everything under way are gone."""

    worker_id: str
    lane: Lane


@dataclass(frozen=True, slots=True)
class CatchUpFinished:
    """This worker now has everything that the members of StartCatchUp(group, epoch) had above the floor."""

    group: GroupId
    epoch: Epoch


@dataclass(frozen=True, slots=True)
class FilesRemoved:
    """Names removed from the catalogue.

    `damaged`: the files should be here, so this member is not whole until it has caught up again.
    """

    store: StoreId
    names: tuple[str, ...]
    damaged: bool


@dataclass(frozen=True, slots=True)
class JobForgotten:
    """The manager reports the final end of the job; the report may be repeated.

    Epochs below `fence` are void.
    """

    job: str
    fence: Epoch


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed. The driver posts a Tick whenever `next_deadline()` is reached."""


Event = (
    GroupAdopted
    | GroupLeft
    | FileStored
    | CommitRequested
    | CommitAbandoned
    | BytesSent
    | BytesFetched
    | BeginReceived
    | TransferStored
    | TransferFailed
    | AckReceived
    | RefusalReceived
    | WriterNamed
    | PeerConnected
    | PeerDisconnected
    | CatchUpFinished
    | FilesRemoved
    | JobForgotten
    | Tick
)

# ---------------------------------------------------------------- effects


@dataclass(frozen=True, slots=True)
class PersistEpoch:
    """Write the highest epoch seen of a group to the index before executing the next effects.

    `members`: their worker ids under this epoch.
    """

    group: GroupId
    epoch: Epoch
    members: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class AskForGroup:
    """Ask the manager for the current group. The answer arrives as GroupAdopted. Repeating the request is harmless."""

    group: GroupId


@dataclass(frozen=True, slots=True)
class AskForWriter:
    """Ask the manager whether this worker, not a member of the group, may write it.

    The answer arrives as WriterNamed. If there is none, the machine asks again with the next file.
    """

    group: GroupId
    worker_id: str


@dataclass(frozen=True, slots=True)
class Connect:
    """Open the push link to this worker (at this address) and lane, and keep trying. Idempotent."""

    to: Worker
    lane: Lane


@dataclass(frozen=True, slots=True)
class OfferFile:
    """Push a file from disk over an open link. Replaces a queued offer of the same file to the same worker."""

    to: Worker
    entry: FileEntry
    epoch: Epoch
    chain: tuple[Worker, ...]
    lane: Lane


@dataclass(frozen=True, slots=True)
class WithdrawOffer:
    """Remove a queued offer. `stop`: send no more of it either if it is under way. Otherwise it may continue."""

    to: str
    store: StoreId
    name: str
    lane: Lane
    stop: bool = False


@dataclass(frozen=True, slots=True)
class ReceiveFile:
    """Receive the bytes of this transfer: temporary file, checksum, rename, index, catalogue;
    then post TransferStored.
    """

    transfer: int
    entry: FileEntry


@dataclass(frozen=True, slots=True)
class DiscardTransfer:
    """Discard the bytes of this transfer and return their credit: the file was refused, or is already here."""

    transfer: int


@dataclass(frozen=True, slots=True)
class SendAck:
    """Tell `upstream` that `member` has stored the file.

    The ack is lost if upstream is not connected; upstream then offers the file again.
    """

    upstream: str
    store: StoreId
    name: str
    epoch: Epoch
    member: Worker
    holds: bool
    lane: Lane


@dataclass(frozen=True, slots=True)
class SendRefusal:
    """Tell `upstream` of a refusal of the file by `member`. It is lost like SendAck if upstream is not connected."""

    upstream: str
    store: StoreId
    name: str
    reason: Refusal
    current_epoch: Epoch
    message: str
    member: Worker
    lane: Lane


@dataclass(frozen=True, slots=True)
class StartCatchUp:
    """Ask `members` for their inventories and pull the files needed and missing here.

    Each pulled file arrives as FileStored, and the end as CatchUpFinished. A new StartCatchUp replaces the running
    catch-up of the same group.

    An inventory counts only if its member had already seen `epoch`: then the member pushes every later file under this
    epoch to here. Ask again while a member has not seen the epoch or cannot be reached.
    """

    group: GroupId
    epoch: Epoch
    members: tuple[Worker, ...]
    whole: bool = False  # this worker has caught up before: missing files may already be on their way here


@dataclass(frozen=True, slots=True)
class MakeVisible:
    """List the file from now on. Idempotent."""

    store: StoreId
    name: str


@dataclass(frozen=True, slots=True)
class CompleteCommit:
    """The answer to a CommitRequested: `copies` members hold the version under `epoch`, or `error`."""

    request: int
    copies: int
    epoch: Epoch
    error: RhinoError | None = None


@dataclass(frozen=True, slots=True)
class DropJob:
    """Write the fence to the index and, in the same write, remove these groups from it. Then delete the files."""

    job: str
    fence: Epoch
    groups: tuple[GroupId, ...]


@dataclass(frozen=True, slots=True)
class DropFile:
    """Remove this file: its transfer began before its job was forgotten, and the manager has created the group again.

    Then post FilesRemoved.
    """

    store: StoreId
    name: str


@dataclass(frozen=True, slots=True)
class ReportGroup:
    """This worker's state in the group (adopted epoch, whole) has changed: report it to the manager."""

    group: GroupId


Effect = (
    PersistEpoch
    | AskForGroup
    | AskForWriter
    | Connect
    | OfferFile
    | WithdrawOffer
    | ReceiveFile
    | DiscardTransfer
    | SendAck
    | SendRefusal
    | StartCatchUp
    | MakeVisible
    | CompleteCommit
    | DropJob
    | DropFile
    | ReportGroup
)
