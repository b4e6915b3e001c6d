"""What goes into and comes out of `ReplicationMachine` (core/machine.py)."""

from __future__ import annotations

from dataclasses import dataclass

from replication_manager.core.membership import Lag, Report
from rhino.ids import DiskState, Epoch, GroupId, JobSettings, ReplicaGroup, StoreId, StoreVersion, Worker


@dataclass(frozen=True, slots=True)
class Registered:
    """A sidecar has introduced itself. Refused with AlreadyThereError while another process beats under its name."""

    worker: Worker
    process_id: str
    highest_epoch: Epoch
    reports: tuple[Report, ...]
    disk: DiskState = DiskState.OK
    disk_message: str = ""
    known: tuple[Worker, ...] = ()  # workers of the cluster, as it was told last


@dataclass(frozen=True, slots=True)
class Beat:
    worker_id: str
    incarnation: str
    stored_bytes: int
    free_bytes: int
    resident_bytes_max: int
    replicated_bytes: int
    changed: tuple[Report, ...]
    disk: DiskState = DiskState.OK
    disk_message: str = ""
    lags: tuple[Lag, ...] = ()


@dataclass(frozen=True, slots=True)
class StreamBroken:
    """The heartbeat stream of this process ended without a word."""

    worker_id: str
    process_id: str


@dataclass(frozen=True, slots=True)
class Refused:
    """After the stream broke: nobody listens at the address of this process. It has ended, its host has not."""

    worker_id: str
    process_id: str


@dataclass(frozen=True, slots=True)
class Leaving:
    """A clean shutdown: the lease ends now."""

    worker_id: str
    process_id: str


@dataclass(frozen=True, slots=True)
class Resolve:
    """A sidecar names a group; a new one is made with it as the owner. TooFewWorkersError, UnavailableError."""

    group: GroupId
    worker_id: str
    settings: JobSettings


@dataclass(frozen=True, slots=True)
class BatchPublished:
    """From Spark's commit log: versions that a batch names, and the oldest that may still be loaded."""

    job: str
    batch_id: int
    logged: tuple[StoreVersion, ...]
    floors: tuple[StoreVersion, ...]


@dataclass(frozen=True, slots=True)
class Change:
    """From the handover manager. ConflictError when `expected` is not the group's epoch any more."""

    group: GroupId
    expected: Epoch | None
    add_member: str
    make_owner: str


@dataclass(frozen=True, slots=True)
class JobForgotten:
    """The job has ended for good (said by the handover manager). UnknownError when nobody stores anything of it."""

    job: str


@dataclass(frozen=True, slots=True)
class WorkerForgotten:
    """The worker will not come back. UnknownError, PreconditionError while it is present."""

    worker_id: str


@dataclass(frozen=True, slots=True)
class DrainSet:
    """The worker is to be emptied of copies, or not any more. UnknownError."""

    worker_id: str
    draining: bool


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed."""


Event = (
    Registered
    | Beat
    | StreamBroken
    | Refused
    | Leaving
    | Resolve
    | BatchPublished
    | Change
    | JobForgotten
    | WorkerForgotten
    | DrainSet
    | Tick
)


@dataclass(frozen=True, slots=True)
class PersistWorker:
    worker: Worker


@dataclass(frozen=True, slots=True)
class PersistGeneration:
    """A sidecar has seen epochs of a later generation than this journal's: go beyond them."""

    generation: int


@dataclass(frozen=True, slots=True)
class PersistGroup:
    """Journal the group before anybody hears of it."""

    group: ReplicaGroup


@dataclass(frozen=True, slots=True)
class PersistFloor:
    floor: StoreVersion


@dataclass(frozen=True, slots=True)
class PublishGroup:
    """Tell every worker that the group concerns, or concerned."""

    group: ReplicaGroup


@dataclass(frozen=True, slots=True)
class PublishWorkers:
    """The set of live or absent workers has changed."""


@dataclass(frozen=True, slots=True)
class PublishFloors:
    floors: tuple[StoreVersion, ...]


@dataclass(frozen=True, slots=True)
class PersistForgotten:
    """Journal that the job is forgotten, together with the DropGroups that follow."""

    job: str
    fence: Epoch


@dataclass(frozen=True, slots=True)
class DropGroups:
    """Groups, and floors of their stores, leave the journal; whom they concerned is told."""

    groups: tuple[GroupId, ...]
    floors: tuple[StoreId, ...]


@dataclass(frozen=True, slots=True)
class DropWorker:
    """The worker leaves the journal."""

    worker_id: str


@dataclass(frozen=True, slots=True)
class PersistDraining:
    """Journal whether the worker is being emptied."""

    worker_id: str
    draining: bool


@dataclass(frozen=True, slots=True)
class PublishForgotten:
    """Tell every worker, also those that come later."""

    job: str
    fence: Epoch


Effect = (
    PersistWorker
    | PersistGeneration
    | PersistGroup
    | PersistFloor
    | PersistForgotten
    | PersistDraining
    | DropGroups
    | DropWorker
    | PublishGroup
    | PublishWorkers
    | PublishFloors
    | PublishForgotten
)
