"""The workers that have reported each group, and its size by these reports."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

from replication_manager.protocol.workers.worker_record import Report, WorkerRecord
from rhino_core.ids import GroupId


class Reporting:
    """The reports of all workers by group. Nearly all groups have a few of them.

    `sizes`: bytes of each group, the most that any present worker stores of it. It is for reading.
    """

    def __init__(self, records: Mapping[str, WorkerRecord]) -> None:
        """`records`: all workers by id."""
        self._records = records
        self._workers: dict[GroupId, tuple[str, ...]] = {}
        self.sizes: dict[GroupId, int] = {}
        self._resized: Callable[[GroupId, int], None] = lambda group, size_bytes: None
        self._changed: Callable[[GroupId], None] = lambda group: None

    def follow(self, resized: Callable[[GroupId, int], None]) -> None:
        """Calls `resized` with each group of a new size, and its bytes, from now on."""
        self._resized = resized

    def on_change(self, changed: Callable[[GroupId], None]) -> None:
        """Calls `changed`, from now on, with each group after a change of its bytes on a present worker, and with some
        more.
        """
        self._changed = changed

    def of(self, group: GroupId) -> tuple[str, ...]:
        """Ids of workers, in their order."""
        return self._workers.get(group, ())

    def reported(self, record: WorkerRecord, report: Report) -> None:
        """A worker reports a group."""
        former = record.reports.get(report.group)
        record.reports[report.group] = report
        if former is None:
            self._add(record.worker.worker_id, report.group)
        before = former.stored_bytes if former is not None else 0
        if report.stored_bytes != before:
            self._changed(report.group)
        if record.present and report.stored_bytes >= before:
            self._set_size(report.group, max(report.stored_bytes, self.sizes.get(report.group, 0)))
        else:
            self._measure(report.group)

    def replace(self, worker_id: str, former: Collection[GroupId], now: Collection[GroupId]) -> None:
        """The worker reports other groups than before. Its record has the new reports."""
        for group in former:
            if group not in now:
                self._remove(worker_id, group)
        for group in now:
            self._add(worker_id, group)
        self.measure(former)
        self.measure(group for group in now if group not in former)

    def measure(self, groups: Iterable[GroupId]) -> None:
        """A worker with reports of these groups has come or gone."""
        for group in groups:
            self._measure(group)

    def _add(self, worker_id: str, group: GroupId) -> None:
        known = self._workers.get(group, ())
        if worker_id not in known:
            self._workers[group] = tuple(sorted((*known, worker_id)))

    def _remove(self, worker_id: str, group: GroupId) -> None:
        left = tuple(other for other in self.of(group) if other != worker_id)
        if left:
            self._workers[group] = left
        else:
            self._workers.pop(group, None)

    def _measure(self, group: GroupId) -> None:
        self._changed(group)
        records = (self._records[worker_id] for worker_id in self.of(group))
        self._set_size(group, max((r.reports[group].stored_bytes for r in records if r.present), default=0))

    def _set_size(self, group: GroupId, size_bytes: int) -> None:
        if size_bytes == self.sizes.get(group, 0):
            return
        if size_bytes:
            self.sizes[group] = size_bytes
        else:
            del self.sizes[group]
        self._resized(group, size_bytes)
