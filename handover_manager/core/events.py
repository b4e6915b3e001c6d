"""Events and effects of the handover manager's core."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from handover_manager.core.locations import Location
from handover_manager.core.plan import Request
from handover_manager.core.view import ClusterView, TaskGroup
from handover_manager.core.work import Work
from rhino.errors import RhinoError
from rhino.ids import GroupId, StoreVersion, VirtualNode


@dataclass(frozen=True, slots=True)
class ClusterSeen:
    view: ClusterView


@dataclass(frozen=True, slots=True)
class QueryStarted:
    """A driver's session reports a running query; again after every reconnect.

    `unplanned`: its run has no batch yet, and no task groups: those of the former run hold.
    """

    session: int
    application_id: str
    job: str
    run_id: str
    name: str
    task_groups: tuple[TaskGroup, ...]
    unplanned: bool = False


@dataclass(frozen=True, slots=True)
class QueryEnded:
    job: str
    run_id: str


@dataclass(frozen=True, slots=True)
class SessionClosed:
    session: int


@dataclass(frozen=True, slots=True)
class BatchLogged:
    """A batch in Spark's commit log, with the version of every store. `work`: of the virtual nodes whose tasks have
    ended since the last report. `repeated`: when a session begins, for the report may have been lost; the batch may
    have begun under any former map."""

    job: str
    run_id: str
    batch_id: int
    versions: tuple[StoreVersion, ...]
    work: Mapping[VirtualNode, Work] = field(default_factory=dict)
    repeated: bool = False


@dataclass(frozen=True, slots=True)
class QueryIdle:
    """No batch of the query runs under an older map than that of `configuration_epoch`, nor will one begin."""

    job: str
    run_id: str
    configuration_epoch: int


@dataclass(frozen=True, slots=True)
class WritersFound:
    """Answers FindWriters: the worker whose executors wrote a version, where one says so."""

    job: str
    batch_id: int
    writers: Mapping[StoreVersion, str]


@dataclass(frozen=True, slots=True)
class HandoverRequested:
    """`handover_id` is new and unique."""

    handover_id: str
    request: Request


@dataclass(frozen=True, slots=True)
class CancelRequested:
    handover_id: str


@dataclass(frozen=True, slots=True)
class GroupChanged:
    """Answers ChangeGroup; `error` None: done."""

    handover_id: str
    group: GroupId
    error: RhinoError | None


@dataclass(frozen=True, slots=True)
class DrainEnded:
    """The worker may take virtual nodes and copies again, before or after it was empty."""

    worker: str


@dataclass(frozen=True, slots=True)
class JobForgotten:
    """The job has ended for good."""

    job: str


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed."""


Event = (
    ClusterSeen
    | QueryStarted
    | QueryEnded
    | SessionClosed
    | BatchLogged
    | QueryIdle
    | WritersFound
    | HandoverRequested
    | CancelRequested
    | GroupChanged
    | DrainEnded
    | JobForgotten
    | Tick
)


@dataclass(frozen=True, slots=True)
class Persist:
    """Journal `value` (JSON) under `key` before any later effect; None deletes."""

    key: str
    value: dict[str, object] | None


@dataclass(frozen=True, slots=True)
class PushLocations:
    """Send the whole map of a job to the driver of `session`."""

    session: int
    job: str
    configuration_epoch: int
    locations: tuple[Location, ...]


@dataclass(frozen=True, slots=True)
class ChangeGroup:
    """Ask the replication manager; exactly one of `add_member` and `make_owner` is set. `handover_id` "": of none."""

    handover_id: str
    group: GroupId
    add_member: str = ""
    make_owner: str = ""


@dataclass(frozen=True, slots=True)
class FindWriters:
    """Find out who wrote these versions; each comes with the worker to ask first ("" when unknown)."""

    job: str
    batch_id: int
    versions: tuple[tuple[StoreVersion, str], ...]


@dataclass(frozen=True, slots=True)
class Announce:
    """The status of a handover has changed."""

    handover_id: str


Effect = Persist | PushLocations | ChangeGroup | FindWriters | Announce
