"""What a whole cluster looks like now: workers, groups and jobs in one dataclass, for `rhino status` and the demo."""

from __future__ import annotations

from dataclasses import dataclass

import grpc

from rhino import ids
from rhino.rpc import convert
from rhino.rpc.channel import call_sync, sync_channel
from rhino.rpc.scrub import NO_SCRUB, ScrubView, scrub_of
from rhino_pb import handover_pb2, handover_pb2_grpc, replication_pb2, replication_pb2_grpc

STATE_NAMES = {
    replication_pb2.WORKER_STATE_LIVE: "live",
    replication_pb2.WORKER_STATE_SUSPECT: "suspect",
    replication_pb2.WORKER_STATE_LOST: "lost",
}


@dataclass(frozen=True, slots=True)
class WorkerView:
    worker_id: str
    host: str
    peer_address: str
    state: str  # live | suspect | lost
    stored_bytes: int
    free_bytes: int
    owned_groups: int
    secondary_groups: int
    last_heartbeat_ago_s: float
    resident_bytes_max: int
    replicated_bytes: int
    scrub: ScrubView = NO_SCRUB  # as the worker said last
    disk: str = "ok"  # ok | full | failing
    disk_message: str = ""
    draining: bool = False  # is to be emptied: takes nothing new


@dataclass(frozen=True, slots=True)
class MemberView:
    worker_id: str
    state: str
    whole: bool
    newest_version: int  # least of the newest held versions of its stores; 0: none
    stored_bytes: int


@dataclass(frozen=True, slots=True)
class GroupView:
    group: ids.GroupId
    epoch: ids.Epoch
    min_copies: int
    required_copies: int
    lag_versions: int
    members: tuple[MemberView, ...]  # owner first
    durability: str  # replicated | synced

    @property
    def degraded(self) -> bool:
        """Fewer whole live members than the job asked for."""
        return sum(m.whole and m.state != "lost" for m in self.members) < self.min_copies


@dataclass(frozen=True, slots=True)
class VirtualNodeView:
    virtual_node: str
    desired_worker: str
    actual_worker: str
    misses: int
    holders: tuple[str, ...]
    rows: int | None = None  # keys in its stores; None: its driver has not told
    task_s: float | None = None  # of its task, median of recent batches


@dataclass(frozen=True, slots=True)
class JobView:
    job: str
    name: str
    connected: bool
    batch_id: int
    configuration_epoch: int
    virtual_nodes: tuple[VirtualNodeView, ...]
    misses: int = 0  # batches in which a virtual node ran elsewhere than desired, over all of them
    missed_now: int = 0  # virtual nodes that did so in the newest batch


@dataclass(frozen=True, slots=True)
class HandoverView:
    """A running handover. `step`: the present one of `steps`, from 1."""

    handover_id: str
    intent: str
    phase: str
    step: int
    steps: int
    waiting_for: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Overview:
    generation: int
    workers: tuple[WorkerView, ...]
    groups: tuple[GroupView, ...]
    jobs: tuple[JobView, ...]
    handovers: tuple[HandoverView, ...] = ()  # those that have not ended


def _worker(message: replication_pb2.WorkerStatus) -> WorkerView:
    return WorkerView(
        worker_id=message.worker.worker_id,
        host=message.worker.host,
        peer_address=message.worker.peer_address,
        state=STATE_NAMES.get(message.state, "unknown"),
        stored_bytes=message.stored_bytes,
        free_bytes=message.free_bytes,
        owned_groups=message.owned_groups,
        secondary_groups=message.member_groups,
        last_heartbeat_ago_s=message.last_heartbeat_ago_s,
        resident_bytes_max=message.resident_bytes_max,
        replicated_bytes=message.replicated_bytes,
        scrub=scrub_of(message.scrub),
        disk=convert.disk_of(message.disk).value,
        disk_message=message.disk_message,
        draining=message.draining,
    )


def _member(message: replication_pb2.MemberStatus) -> MemberView:
    return MemberView(
        worker_id=message.worker.worker_id,
        state=STATE_NAMES.get(message.state, "unknown"),
        whole=message.whole,
        newest_version=min((v.version.version for v in message.newest_held), default=0),
        stored_bytes=message.stored_bytes,
    )


def _group(message: replication_pb2.GroupStatus) -> GroupView:
    return GroupView(
        group=convert.group_of(message.group.group),
        epoch=convert.epoch_of(message.group.epoch),
        min_copies=message.group.min_copies,
        required_copies=message.group.required_copies,
        lag_versions=message.lag_versions,
        members=tuple(_member(m) for m in message.members),
        durability=convert.settings_of(message.group.settings).durability.value,
    )


def job_view(message: handover_pb2.JobStatus) -> JobView:
    nodes = tuple(
        VirtualNodeView(
            virtual_node=v.virtual_node,
            desired_worker=v.desired_worker,
            actual_worker=v.actual_worker,
            misses=v.misses,
            holders=tuple(v.holders),
            rows=v.rows if v.HasField("rows") else None,
            task_s=v.task_s if v.HasField("task_s") else None,
        )
        for v in message.virtual_nodes
    )
    return JobView(
        job=message.job,
        name=message.name,
        connected=message.connected,
        batch_id=message.batch_id,
        configuration_epoch=message.configuration_epoch,
        virtual_nodes=nodes,
        misses=message.misses,
        missed_now=message.missed_now,
    )


def _handover(message: handover_pb2.HandoverStatus) -> HandoverView:
    return HandoverView(
        handover_id=message.handover_id,
        intent=message.plan.intent,
        phase=handover_pb2.HandoverPhase.Name(message.phase).removeprefix("HANDOVER_PHASE_").lower(),
        step=sum(bool(step.finished_ms) for step in message.steps) + 1,
        steps=len(message.steps),
        waiting_for=tuple(message.waiting_for),
    )


def fetch_overview(manager: str, *, timeout_s: float = 5.0) -> Overview:
    """Asks the manager at "host:port". Raises UnavailableError when it cannot be reached in `timeout_s`."""
    with sync_channel(manager) as channel:
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
    return Overview(
        generation=workers.generation,
        workers=tuple(_worker(w) for w in workers.workers),
        groups=tuple(_group(g) for g in groups.groups),
        jobs=tuple(job_view(j) for j in jobs.jobs),
        handovers=tuple(_handover(h) for h in handovers.handovers if not h.finished_ms),
    )
