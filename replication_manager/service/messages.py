"""Converts between the replication manager's core and its protobuf messages."""

from __future__ import annotations

from collections.abc import Iterable

from replication_manager.protocol import events as ev
from replication_manager.protocol.machine import ReplicationMachine
from replication_manager.protocol.workers.worker_record import Lag, Report, WorkerRecord, WorkerState
from rhino_core import ids
from rhino_core.rpc import convert
from rhino_pb import common_pb2
from rhino_pb import replication_pb2 as pb

_STATES = {
    WorkerState.LIVE: pb.WORKER_STATE_LIVE,
    WorkerState.SUSPECT: pb.WORKER_STATE_SUSPECT,
    WorkerState.LOST: pb.WORKER_STATE_LOST,
}


def report_of(message: pb.GroupReport) -> Report:
    return Report(
        group=convert.group_of(message.group),
        epoch=convert.epoch_of(message.epoch),
        whole=message.whole,
        stored_bytes=message.stored_bytes,
        newest_held=tuple(convert.store_version_of(v) for v in message.newest_held),
        newest_written=tuple(convert.store_version_of(v) for v in message.newest_written),
        stored_files=message.stored_files,
    )


def beat_of(message: pb.HeartbeatRequest, changed: Iterable[pb.GroupReport]) -> ev.Beat:
    """The heartbeat with these of its reports."""
    return ev.Beat(
        worker_id=message.worker_id,
        incarnation=message.incarnation,
        stored_bytes=message.stored_bytes,
        free_bytes=message.free_bytes,
        resident_bytes_max=message.resident_bytes_max,
        replicated_bytes=message.replicated_bytes,
        changed=tuple(report_of(r) for r in changed),
        disk=convert.disk_of(message.disk),
        disk_message=message.disk_message,
        lags=tuple(Lag(convert.group_of(m.group), m.worker_id, m.lag_bytes, m.oldest_s) for m in message.lags),
    )


def worker_status(
    core: ReplicationMachine, record: WorkerRecord, scrub: common_pb2.ScrubStatus | None, now: float
) -> pb.WorkerStatus:
    worker_id = record.worker.worker_id
    owned = core.owned_by(worker_id)
    return pb.WorkerStatus(
        worker=convert.labelled_worker_to_pb(record.worker),
        state=_STATES[record.state],
        stored_bytes=record.stored_bytes,
        free_bytes=record.free_bytes,
        owned_groups=owned,
        member_groups=len(core.member_of(worker_id)) - owned,
        last_heartbeat_ago_s=max(now - record.heard_at, 0.0),
        resident_bytes_max=record.resident_bytes_max,
        replicated_bytes=record.replicated_bytes,
        scrub=scrub,
        disk=convert.disk_to_pb(record.disk),
        disk_message=record.disk_message,
        draining=worker_id in core.draining,
        rhino_version=record.version,
    )


def _member_status(core: ReplicationMachine, group: ids.GroupId, worker: ids.Worker, whole: bool) -> pb.MemberStatus:
    record = core.membership.records.get(worker.worker_id)
    report = record.reports.get(group) if record else None
    return pb.MemberStatus(
        worker=convert.worker_to_pb(worker),
        whole=whole,
        state=_STATES[record.state] if record else pb.WORKER_STATE_LOST,
        newest_held=[convert.store_version_to_pb(v) for v in report.newest_held] if report else [],
        stored_bytes=report.stored_bytes if report else 0,
    )


def lag_versions(core: ReplicationMachine, group: ids.ReplicaGroup) -> int:
    """Number of versions between the owner and the least advanced secondary, in the worst store."""
    records, lag = core.membership.records, 0
    owner, *others = (
        record.reports.get(group.group) if (record := records.get(m.worker.worker_id)) is not None else None
        for m in group.members
    )
    for newest in owner.newest_held if owner is not None else ():
        for other in others:
            held = other.newest_held if other is not None else ()
            has = next((version.version.version for version in held if version.store == newest.store), 0)
            lag = max(lag, newest.version.version - has)
    return lag


def group_status(core: ReplicationMachine, group: ids.ReplicaGroup) -> pb.GroupStatus:
    members = [_member_status(core, group.group, m.worker, m.whole) for m in group.members]
    return pb.GroupStatus(
        group=convert.replica_group_to_pb(group),
        members=members,
        lag_versions=lag_versions(core, group),
        logged=[convert.store_version_to_pb(version) for version in core.logged.newest(group.group)],
        others=[
            _member_status(core, group.group, record.worker, False)
            for record in core.membership.with_report(group.group)
            if record.present
            and record.reports[group.group].stored_bytes > 0
            and group.member(record.worker.worker_id) is None
        ],
    )


def job_usage(core: ReplicationMachine, job: str) -> common_pb2.ForgetJobReply:
    """The groups of the job, and its files and bytes on each worker by the latest reports."""
    usages = []
    for record in sorted(core.membership.records.values(), key=lambda r: r.worker.worker_id):
        reports = [report for report in record.reports.values() if report.group.job == job]
        if any(report.stored_files for report in reports):
            usages.append(
                common_pb2.JobUsage(
                    worker_id=record.worker.worker_id,
                    live=record.present,
                    files=sum(report.stored_files for report in reports),
                    bytes=sum(report.stored_bytes for report in reports),
                )
            )
    return common_pb2.ForgetJobReply(job=job, workers=usages, groups=len(core.of_job(job)))


def worker_usage(core: ReplicationMachine, worker_id: str) -> common_pb2.ForgetWorkerReply:
    """The copies given up with an absent worker."""
    record = core.membership.records.get(worker_id)
    mine = [core.groups[group] for group in sorted(core.member_of(worker_id))]
    return common_pb2.ForgetWorkerReply(
        groups=len(mine),
        only_member=[convert.group_to_pb(group.group) for group in mine if len(group.members) == 1],
        bytes=sum(report.stored_bytes for report in record.reports.values()) if record else 0,
    )
