"""The handover manager's access to the replication manager in the same process."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping

from handover_manager import events as wanted
from handover_manager.view import ClusterView, GroupSeen, Remains, WorkerSeen
from replication_manager.protocol import events as ev
from replication_manager.protocol.workers.worker_record import WorkerRecord, WorkerState
from replication_manager.service.service import ReplicationService
from rhino_core.ids import GroupId, ReplicaGroup


class ClusterPort:
    """Implements `handover_manager.service.cluster.Cluster`.

    There may be 100 000 groups. A view costs a copy of one table, and a little more for each change since the previous
    one and for each worker.
    """

    def __init__(self, replication: ReplicationService) -> None:
        self._replication = replication
        self._core = replication.core
        self._groups: dict[GroupId, GroupSeen] = {}
        self._revisions: dict[str, int] = {}  # of jobs with groups; each number is used once
        self._numbers = itertools.count(1)
        self._changed = set(self._core.groups)
        self._resized: set[GroupId] = set()  # other bytes of these groups are stored since the last view
        self.forget_job = replication.forget_job
        self.forget_worker = replication.forget_worker
        self._listeners: list[Callable[[], None]] = []
        self._core.membership.reporting.on_change(self._resized.add)
        replication.runtime.subscribe(self._notify)

    def subscribe(self, listener: Callable[[], None]) -> None:
        self._listeners.append(listener)

    def _notify(self, groups: Iterable[GroupId]) -> None:
        self._changed.update(groups)
        for listener in self._listeners:
            listener()

    def view(self, *, asked_at: float) -> ClusterView:
        gone: set[str] = set()
        for group_id in self._changed:
            self._revisions[group_id.job] = next(self._numbers)
            if group_id not in self._core.groups:
                gone.add(group_id.job)
                self._groups.pop(group_id, None)
        for group_id in self._changed | self._resized:
            if (group := self._core.groups.get(group_id)) is not None:
                self._groups[group_id] = self._seen(group)
        self._changed.clear()
        self._resized.clear()
        for job in gone:
            if not self._core.of_job(job):
                del self._revisions[job]
        return ClusterView(
            workers={name: self._worker(record) for name, record in self._core.membership.records.items()},
            groups=dict(self._groups),
            asked_at=asked_at,
            revisions=dict(self._revisions),
            members=frozenset(self._core.members()),
        )

    def _seen(self, group: ReplicaGroup) -> GroupSeen:
        """Its stored bytes by the last reports: those of members, and of other workers if present."""
        stored: dict[str, int] = {}
        records = self._core.membership.records
        for worker_id in self._core.membership.reporting.of(group.group):
            record = records[worker_id]
            stored_bytes = record.reports[group.group].stored_bytes
            if stored_bytes and (record.present or group.member(worker_id) is not None):
                stored[worker_id] = stored_bytes
        return GroupSeen(group, stored)

    def remains(self, worker_id: str) -> Remains:
        core, record = self._core, self._core.membership.records.get(worker_id)
        stored = (report.group for report in record.reports.values() if report.stored_files) if record else ()
        ungrouped = [group for group in stored if group not in core.groups and group.job not in core.forgotten]
        return Remains(core.unsettled(worker_id), ungrouped)

    def _worker(self, record: WorkerRecord) -> WorkerSeen:
        return WorkerSeen(
            worker=record.worker,
            reachable=record.present,
            live=record.state is WorkerState.LIVE,
            free_bytes=record.free_bytes,
            disk=record.disk,
            disk_message=record.disk_message,
            draining=record.worker.worker_id in self._core.draining,
        )

    def change_group(self, effect: wanted.ChangeGroup) -> None:
        self._replication.handle(ev.Change(effect.group, effect.add_member, effect.make_owner))

    def set_draining(self, worker_id: str, draining: bool) -> None:
        self._replication.handle(ev.DrainSet(worker_id, draining))

    def name_settings(self, effect: wanted.NameSettings) -> None:
        self._replication.name_settings(effect.job, effect.settings)

    def name_executors(self, effect: wanted.NameExecutors) -> None:
        self._replication.handle(ev.ExecutorsNamed(effect.job, effect.workers, effect.hosts))

    def name_targets(self, targets: Mapping[GroupId, str]) -> None:
        self._replication.handle(ev.TargetsNamed(targets))

    def is_deleted(self, job: str) -> bool:
        return job in self._core.forgotten

    def publish(self, effect: wanted.PublishLogged) -> None:
        self._replication.handle(ev.BatchPublished(effect.job, effect.batch_id, effect.versions, effect.floors))
