"""The present state of a whole cluster (workers, groups and jobs) in one dataclass, for `rhino status` and the demo."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import Annotated

import grpc

from rhino.client.connection import manager_channel
from rhino.client.scrub import NO_SCRUB, ScrubView
from rhino_core import ids
from rhino_core.rpc.channel import call_sync
from rhino_core.text import query_handle
from rhino_model.archives import NO_ARCHIVE, Archive
from rhino_model.codec import decode
from rhino_model.handovers import DrainView, Handover
from rhino_model.loads import SourceLag
from rhino_model.places import At, Computed
from rhino_pb import handover_pb2, handover_pb2_grpc, replication_pb2, replication_pb2_grpc

DEFAULTS = ids.JobSettings()


@dataclass(frozen=True, slots=True)
class WorkerView:
    worker_id: Annotated[str, At("worker.worker_id")]
    host: Annotated[str, At("worker.host")]
    peer_address: Annotated[str, At("worker.peer_address")]
    state: str  # live | suspect | lost
    stored_bytes: int
    free_bytes: int
    owned_groups: int
    secondary_groups: Annotated[int, At("member_groups")]
    last_heartbeat_ago_s: float
    resident_bytes_max: int
    replicated_bytes: int
    scrub: ScrubView = NO_SCRUB  # by the worker's last report
    disk: str = "ok"  # ok | full | failing
    disk_message: str = ""
    draining: bool = False  # being emptied: accepts nothing new
    rhino_version: str = ""  # empty: not reported
    zone: Annotated[str, At("worker.zone")] = ""  # empty: unknown
    rack: Annotated[str, At("worker.rack")] = ""


def _oldest(member: replication_pb2.MemberStatus) -> int:
    return min((stored.version.version for stored in member.newest_held), default=0)


@dataclass(frozen=True, slots=True)
class MemberView:
    worker_id: Annotated[str, At("worker.worker_id")]
    state: str  # live | suspect | lost
    whole: bool
    newest_version: Annotated[int, Computed(_oldest)]  # newest complete one of the store furthest behind; 0: none
    stored_bytes: int


@dataclass(frozen=True, slots=True)
class GroupView:
    group: Annotated[ids.GroupId, At("group.group")]
    epoch: Annotated[ids.Epoch, At("group.epoch")]
    min_copies: Annotated[int, At("group.min_copies")]
    required_copies: Annotated[int, At("group.required_copies")]
    lag_versions: int
    members: tuple[MemberView, ...]  # owner first
    settings: Annotated[ids.JobSettings, At("group.settings")] = DEFAULTS  # of its job

    @property
    def durability(self) -> str:
        """replicated | synced"""
        return self.settings.durability.value

    @property
    def replication_factor(self) -> int:
        return self.settings.replication_factor

    @property
    def below_min_copies(self) -> str:
        """degraded | block"""
        return self.settings.below_min_copies.value

    @property
    def degraded(self) -> bool:
        """Fewer whole live members than the job requires."""
        return sum(m.whole and m.state != "lost" for m in self.members) < self.min_copies


@dataclass(frozen=True, slots=True)
class VirtualNodeView:
    virtual_node: str
    desired_worker: str
    actual_worker: str
    misses: int
    holders: tuple[str, ...]
    rows: int | None = None  # keys in its stores; None: not reported by its driver
    task_s: float | None = None  # duration of its task, median of recent batches


@dataclass(frozen=True, slots=True)
class JobView:
    job: str
    name: str
    connected: bool
    batch_id: int
    configuration_epoch: int
    virtual_nodes: tuple[VirtualNodeView, ...]
    misses: int = 0  # total number of (batch, virtual node) that ran elsewhere than desired
    missed_now: int = 0  # number of virtual nodes with a miss in the newest batch
    location: str = ""  # of the query checkpoint; empty: not reported by a driver
    driver_host: str = ""
    delete_in_s: float | None = None  # it is forgotten: seconds until its state is deleted; None: it is not
    owner: str = ""  # name in the certificate of the driver that may run it; empty: any driver
    forgotten_ms: int = 0  # wall clock when it was forgotten; 0: it is not
    forgotten_by: str = ""  # URI in the certificate of who has forgotten it; empty: not known
    application_id: str = ""
    rhino_version: str = ""  # of the driver's jar, while it is connected; empty: not reported
    workers_wanted: int | None = None  # with which batches stay within the trigger interval; None: not known
    workers_wanted_why: str = ""
    lags: tuple[SourceLag, ...] = ()  # of its sources, in the newest batches
    batch_ago_s: float | None = None  # since its newest batch, or its driver's report; None: no driver
    batch_interval_s: float | None = None  # between its batches, median of recent ones; None: not known
    executors: int | None = None  # of its application; None: no driver


@dataclass(frozen=True, slots=True)
class Overview:
    generation: int
    workers: tuple[WorkerView, ...]
    groups: tuple[GroupView, ...]
    jobs: tuple[JobView, ...]
    handovers: tuple[Handover, ...] = ()  # those that have not ended
    rhino_version: str = ""  # of the manager; empty: not reported
    insecure: bool = False  # the manager runs with --insecure
    drains: tuple[DrainView, ...] = ()  # of workers that are draining and not lost
    archive: Archive = NO_ARCHIVE
    witnesses: tuple[str, ...] = ()  # addresses of the sidecars with the manager's journal; empty: it is on its disk
    silent_witnesses: tuple[str, ...] = ()  # those that do not answer


def query_names(jobs: Iterable[JobView]) -> dict[str, str]:
    """A name for each job id: the query's name if no other query has it, otherwise its handle (`query_handle`).

    A forgotten query leaves its name to another one. A query without a name has its id.
    """
    jobs = tuple(jobs)
    uses = Counter(job.name for job in jobs)
    present = Counter(job.name for job in jobs if job.delete_in_s is None)

    def unique(job: JobView) -> bool:
        return uses[job.name] == 1 or (job.delete_in_s is None and present[job.name] == 1)

    def named(job: JobView) -> str:
        if not job.name:
            return job.job
        return job.name if unique(job) else query_handle(job.name, job.job)

    return {job.job: named(job) for job in jobs}


def fetch_overview(manager: str, *, timeout_s: float = 5.0) -> Overview:
    """Asks the manager at "host:port". Raises UnavailableError if it does not answer within `timeout_s`."""
    with manager_channel(manager) as channel:
        return _ask(manager, channel, timeout_s)


def _ask(manager: str, channel: grpc.Channel, timeout_s: float) -> Overview:
    replication = replication_pb2_grpc.ReplicationManagerStub(channel)
    handover = handover_pb2_grpc.HandoverManagerStub(channel)
    doing = f"manager at {manager}"
    workers = call_sync(doing, lambda: replication.ListWorkers(replication_pb2.ListWorkersRequest(), timeout=timeout_s))
    groups = call_sync(
        doing, lambda: replication.DescribeGroups(replication_pb2.DescribeGroupsRequest(), timeout=timeout_s)
    )
    jobs = call_sync(doing, lambda: handover.ListJobs(handover_pb2.ListJobsRequest(), timeout=timeout_s))
    request = handover_pb2.ListHandoversRequest()
    handovers = call_sync(doing, lambda: handover.ListHandovers(request, timeout=timeout_s))
    seen = tuple(decode(WorkerView, w) for w in workers.workers)
    draining = [handover_pb2.GetDrainRequest(worker=w.worker_id) for w in seen if w.draining and w.state != "lost"]
    drains = [call_sync(doing, partial(handover.GetDrain, one, timeout=timeout_s)) for one in draining]
    archive = call_sync(doing, lambda: handover.GetArchive(handover_pb2.GetArchiveRequest(), timeout=timeout_s))
    return Overview(
        generation=workers.generation,
        workers=seen,
        groups=tuple(decode(GroupView, g) for g in groups.groups),
        jobs=tuple(decode(JobView, j) for j in jobs.jobs),
        handovers=tuple(decode(Handover, h) for h in handovers.handovers if not h.finished_ms),
        rhino_version=workers.rhino_version,
        insecure=workers.insecure,
        witnesses=tuple(workers.witness_addresses),
        silent_witnesses=tuple(workers.silent_witness_addresses),
        drains=tuple(decode(DrainView, d) for d in drains),
        archive=decode(Archive, archive),
    )
