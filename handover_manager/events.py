"""Events and effects of the handover manager's core."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from handover_manager.plan.locations import Location
from handover_manager.plan.work import Work
from handover_manager.view import ClusterView, TaskGroup
from rhino_core.errors import RhinoError
from rhino_core.ids import GroupId, JobSettings, StoreVersion, VirtualNode
from rhino_core.records import Record
from rhino_model.intents import Request
from rhino_model.loads import SourceLag


@dataclass(frozen=True, slots=True)
class ClusterSeen:
    """A fresh view of the cluster. Everything due by then is done."""

    view: ClusterView


@dataclass(frozen=True, slots=True)
class Restarted:
    """The process has started. The first event: it resumes the restored handovers."""


@dataclass(frozen=True, slots=True)
class QueryStarted:
    """A driver's session reports a running query. It does so again after every reconnect.

    `unplanned`: the run has no batch and no task groups yet, so the groups of the former run apply. `host` is the
    driver's. `location` is the place of the query checkpoint, as Hadoop writes paths. It is empty if the driver does
    not report it. `rhino_version` is the version of the driver's jar. `temporary`: Spark has made the query checkpoint,
    and deletes it after the run. `principal` is the name in the driver's certificate. It is empty without certificates.
    """

    session: int
    application_id: str
    job: str
    run_id: str
    name: str
    task_groups: tuple[TaskGroup, ...]
    unplanned: bool = False
    settings: JobSettings | None = None  # of the session; None: not reported
    host: str = ""
    location: str = ""
    rhino_version: str = ""
    principal: str = ""
    temporary: bool = False


@dataclass(frozen=True, slots=True)
class QueryEnded:
    session: int
    job: str
    run_id: str


@dataclass(frozen=True, slots=True)
class SessionClosed:
    session: int


@dataclass(frozen=True, slots=True)
class SessionAnswered:
    """The driver of the session has answered ProbeSession: it is alive."""

    session: int


@dataclass(frozen=True, slots=True)
class ExecutorChanged:
    """An executor of the session's application was added, has reported its worker, or was removed.

    `host` may be empty if it was removed. `worker_id` is empty until the executor has reported its worker.
    """

    session: int
    executor_id: str
    host: str
    removed: bool
    worker_id: str = ""


@dataclass(frozen=True, slots=True)
class OwnerSet:
    """An operator names the driver that may run a job. `owner`: the name in its certificate; empty: the next one."""

    job: str
    owner: str
    by: str = ""


@dataclass(frozen=True, slots=True)
class CheckpointMoved:
    """The user reports the new location of a job's query checkpoint. `job` is an id or a unique name."""

    job: str
    location: str
    by: str = ""


@dataclass(frozen=True, slots=True)
class BatchLogged:
    """A batch in Spark's commit log, with the version of every store.

    `work` covers the virtual nodes with tasks ended since the last report. `repeated`: a new session sends the newest
    batch once more, because the first report may have been lost. Such a batch may have begun under any former map.
    `floors` are the oldest versions Spark may still load. `rows`: input rows. `batch_s`: the duration of the batch in
    seconds. Both are 0 if the driver does not report them. `trigger_s`: the trigger interval in seconds; 0: none.
    `lags`: of sources with a report of one.
    """

    session: int
    job: str
    run_id: str
    batch_id: int
    versions: tuple[StoreVersion, ...]
    work: Mapping[VirtualNode, Work] = field(default_factory=dict)
    repeated: bool = False
    floors: tuple[StoreVersion, ...] = ()
    rows: int = 0
    batch_s: float = 0.0
    trigger_s: float = 0.0
    lags: tuple[SourceLag, ...] = ()


@dataclass(frozen=True, slots=True)
class QueryIdle:
    """No batch of the query runs or will begin under a map older than `configuration_epoch`."""

    session: int
    job: str
    run_id: str
    configuration_epoch: int


@dataclass(frozen=True, slots=True)
class WritersFound:
    """Answers FindWriters: for each version the worker with the writing executors, as far as a worker claims it."""

    job: str
    batch_id: int
    writers: Mapping[StoreVersion, str]


@dataclass(frozen=True, slots=True)
class HandoverRequested:
    """A user asks for a handover. `handover_id` is new and unique. `by`: the user's identity; empty: not known."""

    handover_id: str
    request: Request
    by: str = ""


@dataclass(frozen=True, slots=True)
class CancelRequested:
    handover_id: str
    by: str = ""


@dataclass(frozen=True, slots=True)
class GroupChanged:
    """Answers ChangeGroup. `error` is None on success."""

    handover_id: str
    group: GroupId
    error: RhinoError | None


@dataclass(frozen=True, slots=True)
class DrainBegun:
    """A user has marked the worker. The replication manager has journalled the mark.

    `notice_s`: the worker leaves in so many seconds, whatever happens. 0: it waits.
    """

    worker: str
    by: str = ""
    notice_s: float = 0.0


@dataclass(frozen=True, slots=True)
class DrainEnded:
    """The worker may receive virtual nodes and copies again. It may not have been empty yet."""

    worker: str
    by: str = ""


@dataclass(frozen=True, slots=True)
class WorkerForgotten:
    """A user has given up the worker. The replication manager has journalled it."""

    worker: str
    by: str = ""


@dataclass(frozen=True, slots=True)
class ForgetRequested:
    """The user forgets a job, given by its id or unique name. Its state is deleted after `grace_s`; 0: at once."""

    job: str
    grace_s: float
    by: str = ""


@dataclass(frozen=True, slots=True)
class ForgetUndone:
    """The user takes ForgetRequested back. `job` is an id or the unique name of a forgotten job."""

    job: str
    by: str = ""


@dataclass(frozen=True, slots=True)
class JobForgotten:
    """Answers DeleteJob: the state of the job is deleted."""

    job: str


Event = (
    ClusterSeen
    | Restarted
    | QueryStarted
    | QueryEnded
    | SessionClosed
    | SessionAnswered
    | ExecutorChanged
    | CheckpointMoved
    | OwnerSet
    | BatchLogged
    | QueryIdle
    | WritersFound
    | HandoverRequested
    | CancelRequested
    | GroupChanged
    | DrainBegun
    | DrainEnded
    | WorkerForgotten
    | ForgetRequested
    | ForgetUndone
    | JobForgotten
)


@dataclass(frozen=True, slots=True)
class Persist:
    """Journal `record` under `key` before any other effect. None deletes the key."""

    key: str
    record: Record | None


@dataclass(frozen=True, slots=True)
class PushLocations:
    """Send the complete map of a job to the driver of `session`."""

    session: int
    job: str
    configuration_epoch: int
    locations: tuple[Location, ...]
    hosts: tuple[tuple[str, str], ...] = ()  # of the workers that are named; "": unknown


@dataclass(frozen=True, slots=True)
class RefuseQuery:
    """Tell the driver of `session` to end this run, with the reason. No report about the run counts."""

    session: int
    job: str
    run_id: str
    reason: str


@dataclass(frozen=True, slots=True)
class ProbeSession:
    """Ask the driver of `session` whether it is alive."""

    session: int


@dataclass(frozen=True, slots=True)
class NameLost:
    """Tell the driver of `session` which workers are lost."""

    session: int
    workers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ReadCheckpoint:
    """Let the driver send the files of a query checkpoint that belong to a batch, for the archive."""

    session: int
    job: str
    batch_id: int


@dataclass(frozen=True, slots=True)
class PublishLogged:
    """Report the content of a logged batch to the replication manager.

    `versions` are the ones of the batch, `floors` the oldest Spark may still load.
    """

    job: str
    batch_id: int
    versions: tuple[StoreVersion, ...]
    floors: tuple[StoreVersion, ...]


@dataclass(frozen=True, slots=True)
class ChangeGroup:
    """Ask the replication manager to change a group. Exactly one of `add_member` and `make_owner` is set.

    `handover_id` is empty if the change belongs to no handover.
    """

    handover_id: str
    group: GroupId
    add_member: str = ""
    make_owner: str = ""


@dataclass(frozen=True, slots=True)
class NameSettings:
    """Report the settings of the job's present driver to the replication manager."""

    job: str
    settings: JobSettings


@dataclass(frozen=True, slots=True)
class NameExecutors:
    """Report the places of the job's executors to the replication manager.

    `workers` come from the executors with a reported worker, `hosts` are the hosts of the others.
    """

    job: str
    workers: frozenset[str]
    hosts: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class FindWriters:
    """Find the writers of these versions. Each version comes with the worker to ask first ("" if unknown).

    `near`: workers with executors of the job, asked next. Empty: not known.
    """

    job: str
    batch_id: int
    versions: tuple[tuple[StoreVersion, str], ...]
    near: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class DeleteJob:
    """Ask the replication manager to delete all state of a job. Repeated until JobForgotten answers it."""

    job: str


@dataclass(frozen=True, slots=True)
class Announce:
    """Publish the changed status of a handover."""

    handover_id: str


DriverEffect = PushLocations | RefuseQuery | ProbeSession | NameLost | ReadCheckpoint  # sent to the driver of a session
Effect = (
    Persist
    | DriverEffect
    | PublishLogged
    | ChangeGroup
    | NameSettings
    | NameExecutors
    | FindWriters
    | DeleteJob
    | Announce
)
