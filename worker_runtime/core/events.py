"""What goes into and comes out of `ChainMachine` (core/chain.py): closed unions of frozen dataclasses.

Who drives the machine owes it: the catalogue is changed *before* the event that tells of the change, and effects are
executed in order (persist, then send). Links to other workers are per (worker_id, lane) and lose what was queued on
them when they break; everything that still matters is offered again after the next PeerConnected.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from rhino.errors import RhinoError
from rhino.ids import Epoch, FileEntry, GroupId, Lane, ReplicaGroup, StoreId, Worker


class Refusal(enum.Enum):
    """Why a pushed file was not taken."""

    STALE_EPOCH = "stale_epoch"  # the sender acts under an older epoch than the receiver has seen
    CHECKSUM = "checksum"  # the bytes did not match: send again
    NAME_CONFLICT = "name_conflict"  # (store, name) is here with another checksum: never to be sent again
    STORAGE = "storage"  # disk full or failing: try again later


# ---------------------------------------------------------------- events


@dataclass(frozen=True, slots=True)
class GroupAdopted:
    """The manager's word on a group (ResolveGroup or WatchGroups). Older than what was seen: ignored."""

    group: ReplicaGroup


@dataclass(frozen=True, slots=True)
class GroupLeft:
    """The group no longer concerns this worker. Its files stay for the time being (core/excess.py)."""

    group: GroupId


@dataclass(frozen=True, slots=True)
class FileStored:
    """A file is on disk, in the index and in the catalogue. `written`: an executor of this worker wrote it (Add), so
    it is pushed down the chain; otherwise catch-up or Prepare pulled it."""

    entry: FileEntry
    written: bool


@dataclass(frozen=True, slots=True)
class CommitRequested:
    """A changelog or zip of an executor of this worker is stored, hidden; answered by one CompleteCommit.

    `request` is unique. `deadline` is monotonic time in seconds. The same file again is allowed (a retry).
    """

    request: int
    entry: FileEntry
    deadline: float


@dataclass(frozen=True, slots=True)
class CommitAbandoned:
    """Nobody waits for this request any more. The file stays hidden and goes on being replicated."""

    request: int


@dataclass(frozen=True, slots=True)
class BeginReceived:
    """`upstream` (worker_id) announces a file. Answered by exactly one of ReceiveFile and DiscardTransfer.

    `transfer` is unique within this process. `chain`: members after this one, in order.
    """

    upstream: str
    transfer: int
    entry: FileEntry
    epoch: Epoch
    chain: tuple[Worker, ...]


@dataclass(frozen=True, slots=True)
class TransferStored:
    """All bytes of an accepted transfer are on disk, checked, in the index and in the catalogue."""

    transfer: int


@dataclass(frozen=True, slots=True)
class TransferFailed:
    """An accepted transfer ended without a file: CHECKSUM, NAME_CONFLICT or STORAGE; None: the stream broke."""

    transfer: int
    reason: Refusal | None
    message: str = ""


@dataclass(frozen=True, slots=True)
class AckReceived:
    """`sender` (worker_id, the next in the chain) passes on that `member` has stored the file under `epoch`.

    `holds`: that member has the whole closure of the file's version (always true for SST and log files).
    """

    sender: str
    store: StoreId
    name: str
    epoch: Epoch
    member: Worker
    holds: bool


@dataclass(frozen=True, slots=True)
class RefusalReceived:
    """`sender` says that `member` has refused the file. `current_epoch` matters for STALE_EPOCH only."""

    sender: str
    store: StoreId
    name: str
    reason: Refusal
    current_epoch: Epoch
    message: str
    member: Worker


@dataclass(frozen=True, slots=True)
class PeerConnected:
    """The link for pushes to this worker and lane is open (again), with nothing queued on it."""

    worker_id: str
    lane: Lane


@dataclass(frozen=True, slots=True)
class PeerDisconnected:
    """The link broke; what was queued on it or under way is gone."""

    worker_id: str
    lane: Lane


@dataclass(frozen=True, slots=True)
class CatchUpFinished:
    """Everything that the members of StartCatchUp(group, epoch) had above the floor is here."""

    group: GroupId
    epoch: Epoch


@dataclass(frozen=True, slots=True)
class FilesRemoved:
    """Names that left the catalogue. `damaged`: they should be here, so this member is not whole until it
    has caught up again."""

    store: StoreId
    names: tuple[str, ...]
    damaged: bool


@dataclass(frozen=True, slots=True)
class JobForgotten:
    """The job has ended for good, says the manager; perhaps for the second time. Epochs below `fence` are void."""

    job: str
    fence: Epoch


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed; due whenever `next_deadline()` has."""


Event = (
    GroupAdopted
    | GroupLeft
    | FileStored
    | CommitRequested
    | CommitAbandoned
    | BeginReceived
    | TransferStored
    | TransferFailed
    | AckReceived
    | RefusalReceived
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
    """Put the highest epoch seen of a group into the index before the effects that follow."""

    group: GroupId
    epoch: Epoch


@dataclass(frozen=True, slots=True)
class AskForGroup:
    """Ask the manager for the group as it is now; its answer comes back as GroupAdopted. Repeating is harmless."""

    group: GroupId


@dataclass(frozen=True, slots=True)
class Connect:
    """Open the link for pushes to this worker (at this address) and lane, and keep trying; idempotent."""

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
    """Take a queued offer back; one under way may go on."""

    to: str
    store: StoreId
    name: str
    lane: Lane


@dataclass(frozen=True, slots=True)
class ReceiveFile:
    """Take the bytes of this transfer: temporary file, checksum, rename, index, catalogue; then TransferStored."""

    transfer: int
    entry: FileEntry


@dataclass(frozen=True, slots=True)
class DiscardTransfer:
    """Throw the bytes of this transfer away (returning their credit): refused, or here already."""

    transfer: int


@dataclass(frozen=True, slots=True)
class SendAck:
    """Tell `upstream` that `member` has stored the file. Lost when upstream is not connected: it will offer again."""

    upstream: str
    store: StoreId
    name: str
    epoch: Epoch
    member: Worker
    holds: bool
    lane: Lane


@dataclass(frozen=True, slots=True)
class SendRefusal:
    """Tell `upstream` that `member` did not take the file; as SendAck."""

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
    """Ask `members` for their inventories and pull what is wanted; each pulled file comes as FileStored, the end as
    CatchUpFinished. Replaces a catch-up of the same group that is running.

    An inventory counts only when the member that gives it has itself seen `epoch`: what it stores later under that
    epoch is pushed here. Until then, and while a member cannot be reached, ask again.
    """

    group: GroupId
    epoch: Epoch
    members: tuple[Worker, ...]
    whole: bool = False  # this worker has caught up before: what it lacks may be on its way here


@dataclass(frozen=True, slots=True)
class MakeVisible:
    """The file may now be listed. Idempotent."""

    store: StoreId
    name: str


@dataclass(frozen=True, slots=True)
class CompleteCommit:
    """The answer to a CommitRequested: `copies` members hold the version under `epoch`; or `error`."""

    request: int
    copies: int
    epoch: Epoch
    error: RhinoError | None = None


@dataclass(frozen=True, slots=True)
class DropJob:
    """Put the fence into the index, and in the same write everything of these groups out of it; then delete files."""

    job: str
    fence: Epoch
    groups: tuple[GroupId, ...]


@dataclass(frozen=True, slots=True)
class ReportGroup:
    """This worker's account of the group (epoch adopted, whole) has changed: tell the manager."""

    group: GroupId


Effect = (
    PersistEpoch
    | AskForGroup
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
    | ReportGroup
)
