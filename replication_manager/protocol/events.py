"""Events and effects of `ReplicationMachine` (protocol/machine.py)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from replication_manager.protocol.workers.worker_record import Lag, Report
from rhino_core.ids import DiskState, Epoch, GroupId, JobSettings, ReplicaGroup, StoreId, StoreVersion, Worker


@dataclass(frozen=True, slots=True)
class Registered:
    """A sidecar has registered. Raises AlreadyThereError while another live process uses the same worker id."""

    worker: Worker
    process_id: str
    highest_epoch: Epoch
    reports: tuple[Report, ...]
    disk: DiskState = DiskState.OK
    disk_message: str = ""
    known: tuple[Worker, ...] = ()  # workers that the sidecar knows
    version: str = ""  # of Rhino, for people


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
    """The heartbeat stream of this process ended without a farewell."""

    worker_id: str
    process_id: str


@dataclass(frozen=True, slots=True)
class Refused:
    """After the stream broke, the process's address refused a connection: the process has ended, its host has not."""

    worker_id: str
    process_id: str


@dataclass(frozen=True, slots=True)
class Leaving:
    """A clean shutdown. The manager expects a restart and waits, unless the worker is draining."""

    worker_id: str
    process_id: str


@dataclass(frozen=True, slots=True)
class Resolve:
    """A sidecar asks for a group. Its worker becomes the owner of a new group.

    `settings` come from the executor's session. They apply to the first group of a job only. `branch_of`: a group of
    another job with the same files; its members come first in a new group.

    Raises TooFewWorkersError, UnavailableError, and PreconditionError for a forgotten job.
    """

    group: GroupId
    worker_id: str
    settings: JobSettings
    branch_of: GroupId | None = None


@dataclass(frozen=True, slots=True)
class SettingsNamed:
    """The settings of the present driver of the job's query.

    Raises PreconditionError for a setting that cannot change.
    """

    job: str
    settings: JobSettings


@dataclass(frozen=True, slots=True)
class ExecutorsNamed:
    """Locations of the job's present executors. Placement prefers these workers, and workers on these hosts.

    `hosts`: of executors that have not reported their worker.
    """

    job: str
    workers: frozenset[str]
    hosts: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class BatchPublished:
    """From Spark's commit log: the versions of a batch, and the floors.

    Raises InvalidRequestError if the event names another job, or a floor above all versions of the batch.
    """

    job: str
    batch_id: int
    logged: tuple[StoreVersion, ...]
    floors: tuple[StoreVersion, ...]


@dataclass(frozen=True, slots=True)
class Change:
    """A change by the handover manager."""

    group: GroupId
    add_member: str
    make_owner: str


@dataclass(frozen=True, slots=True)
class JobForgotten:
    """The handover manager reports the final end of the job.

    Raises UnknownError if no worker stores any of it.
    """

    job: str


@dataclass(frozen=True, slots=True)
class WorkerForgotten:
    """The worker will not come back. Raises UnknownError, and PreconditionError unless the worker has ended."""

    worker_id: str


@dataclass(frozen=True, slots=True)
class DrainSet:
    """Starts or ends the draining of a worker. Raises UnknownError."""

    worker_id: str
    draining: bool


@dataclass(frozen=True, slots=True)
class TargetsNamed:
    """The targets of all handovers in progress, by group. They replace those named before.

    Some were whole members before their handover, so no `Change` has added them.
    """

    targets: Mapping[GroupId, str]


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
    | SettingsNamed
    | ExecutorsNamed
    | BatchPublished
    | Change
    | TargetsNamed
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
    """Raise the journalled generation: a sidecar has seen epochs of a later one."""

    generation: int


@dataclass(frozen=True, slots=True)
class PersistGroup:
    """Journal the group before it is published."""

    group: ReplicaGroup


@dataclass(frozen=True, slots=True)
class PersistFloor:
    floor: StoreVersion


@dataclass(frozen=True, slots=True)
class PublishGroup:
    """Send the group to every worker concerned, now or before."""

    group: ReplicaGroup


@dataclass(frozen=True, slots=True)
class PublishWorkers:
    """Send the live and the absent workers: they have changed."""


@dataclass(frozen=True, slots=True)
class PublishFloors:
    floors: tuple[StoreVersion, ...]


@dataclass(frozen=True, slots=True)
class PersistForgotten:
    """Journal the job as forgotten, in one write with the DropGroups after it."""

    job: str
    fence: Epoch


@dataclass(frozen=True, slots=True)
class DropGroups:
    """Remove groups, and the floors of their stores, from the journal, and notify the workers concerned."""

    groups: tuple[GroupId, ...]
    floors: tuple[StoreId, ...]


@dataclass(frozen=True, slots=True)
class DropWorker:
    """Remove the worker from the journal."""

    worker_id: str


@dataclass(frozen=True, slots=True)
class PersistDraining:
    """Journal whether the worker is draining."""

    worker_id: str
    draining: bool


@dataclass(frozen=True, slots=True)
class PublishForgotten:
    """Send the fence to every worker, also to those connecting later."""

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
