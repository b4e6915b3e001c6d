"""The handover manager's access to the replication manager in the same process."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any

from handover_manager import events as wanted
from handover_manager.view import ClusterView, GroupSeen, WorkerSeen
from replication_manager.protocol import events as ev
from replication_manager.protocol.machine import ReplicationMachine
from replication_manager.protocol.workers.worker_record import WorkerRecord, WorkerState
from replication_manager.service.service import ReplicationService
from rhino_core.ids import GroupId


class ClusterPort:
    """Implements `handover_manager.service.cluster.Cluster`.

    There may be 100 000 groups. The cost of a view depends on the changes since the previous one, plus a little per
    worker.
    """

    def __init__(self, replication: ReplicationService) -> None:
        self._replication = replication
        self._core = replication.core
        self._groups: dict[GroupId, GroupSeen] = {}
        self._revisions: dict[str, int] = {}  # of jobs with groups; each number is used once
        self._editions: dict[GroupId, int] = {}
        self._numbers = itertools.count(1)
        self._changed = set(self._core.groups)
        self.forget_job = replication.forget_job
        self.forget_worker = replication.forget_worker
        self._listeners: list[Callable[[], None]] = []
        self._core.membership.reporting.on_change(self._stored)
        replication.runtime.subscribe(self._notify)

    def subscribe(self, listener: Callable[[], None]) -> None:
        self._listeners.append(listener)

    def _notify(self, groups: Iterable[GroupId]) -> None:
        self._changed.update(groups)
        for listener in self._listeners:
            listener()

    def _stored(self, group: GroupId) -> None:
        """Other bytes of a group are stored. Existing views show these as well."""
        if group in self._editions:
            self._editions[group] = next(self._numbers)

    def view(self, *, asked_at: float) -> ClusterView:
        gone: set[str] = set()
        for group_id in self._changed:
            group = self._core.groups.get(group_id)
            self._revisions[group_id.job] = next(self._numbers)
            if group is None:
                gone.add(group_id.job)
                self._groups.pop(group_id, None)
                self._editions.pop(group_id, None)
            else:
                self._editions[group_id] = next(self._numbers)
                self._groups[group_id] = GroupSeen(
                    group, StoredBytes(self._core, group_id), Sources(self._core, group_id)
                )
        self._changed.clear()
        for job in gone:
            if not self._core.of_job(job):
                del self._revisions[job]
        workers = {name: self._worker(record) for name, record in self._core.membership.records.items()}
        return ClusterView(
            workers,
            self._groups,
            asked_at=asked_at,
            revisions=self._revisions,
            editions=self._editions,
            members=self._core.members(),
            copy_decisions=self._core.copy_decisions,
            ungrouped=Ungrouped(self._core),
        )

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
        self._replication.handle(ev.Change(effect.group, None, effect.add_member, effect.make_owner))

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
        self._replication.handle(
            ev.BatchPublished(effect.job, effect.batch_id, effect.versions, effect.floors, effect.task_s)
        )


class StoredBytes(Mapping[str, int]):
    """Bytes of a group on each worker, by its last report. Covers members, and other workers if present."""

    def __init__(self, core: ReplicationMachine, group: GroupId) -> None:
        self._core = core
        self._group = group

    def _bytes(self, worker_id: str) -> int:
        record = self._core.membership.records.get(worker_id)
        report = record.reports.get(self._group) if record is not None else None
        if record is None or report is None:
            return 0
        if record.present:
            return report.stored_bytes
        group = self._core.groups.get(self._group)
        return report.stored_bytes if group is not None and group.member(worker_id) is not None else 0

    def get(self, worker_id: str, default: Any = None) -> Any:
        return self._bytes(worker_id) or default

    def __getitem__(self, worker_id: str) -> int:
        if stored := self._bytes(worker_id):
            return stored
        raise KeyError(worker_id)

    def __iter__(self) -> Iterator[str]:
        return (worker_id for worker_id in self._core.membership.reporting.of(self._group) if self._bytes(worker_id))

    def __len__(self) -> int:
        return sum(1 for _ in self)


class Ungrouped(Mapping[str, Collection[GroupId]]):
    """Groups of a worker's files that do not exist, by its last report."""

    def __init__(self, core: ReplicationMachine) -> None:
        self._core = core

    def __getitem__(self, worker_id: str) -> list[GroupId]:
        core, reports = self._core, self._core.membership.records[worker_id].reports.values()
        stored = (report.group for report in reports if report.stored_files)
        return [group for group in stored if group not in core.groups and group.job not in core.forgotten]

    def __iter__(self) -> Iterator[str]:
        return iter(self._core.membership.records)

    def __len__(self) -> int:
        return len(self._core.membership.records)


class Sources(Collection[str]):
    """Workers that may have versions of a group absent from all whole members, at the time of the access."""

    def __init__(self, core: ReplicationMachine, group: GroupId) -> None:
        self._core = core
        self._group = group

    def __contains__(self, worker_id: object) -> bool:
        return worker_id in self._core.unsettled_sources(self._group)

    def __iter__(self) -> Iterator[str]:
        return iter(self._core.unsettled_sources(self._group))

    def __len__(self) -> int:
        return len(self._core.unsettled_sources(self._group))
