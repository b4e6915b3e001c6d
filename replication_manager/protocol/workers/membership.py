"""Membership by registration, heartbeat and lease: a failure detector without a clock of its own."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from replication_manager.protocol.workers.leases import Leases
from replication_manager.protocol.workers.reporting import Reporting
from replication_manager.protocol.workers.worker_record import Report, WorkerRecord, WorkerState
from rhino_core.ids import GroupId, Worker
from rhino_core.planning.spread import Place

RETURN_LEASE_S = 10.0  # time to restart a sidecar that shut down cleanly


@dataclass(frozen=True, slots=True)
class LeaseTimes:
    """Lengths of a lease: after a heartbeat, after the stream broke, and after a clean shutdown."""

    lease_s: float
    suspect_lease_s: float
    return_lease_s: float = RETURN_LEASE_S


class Membership:
    """All workers ever seen, and the draining ones.

    A heartbeat must not cost more if there are many workers: 1000 of them send 2000 a second. `reporting` finds the
    reports about a group. `edition` rises whenever a worker comes, goes, or is another one than before. It does not if
    a worker only registers again, as all of them do after a restart of the manager.
    """

    def __init__(self, times: LeaseTimes, draining: Iterable[str] = ()) -> None:
        self._times = times
        self.records: dict[str, WorkerRecord] = {}
        self.draining = set(draining)  # nothing new is placed on these workers
        self.reporting = Reporting(self.records)
        self.edition = 0
        self._leases = Leases(self.records, times.lease_s)

    def restore(self, worker: Worker, now: float) -> None:
        """Restores a worker from the journal. It has one lease to come back, from the newest return of another one.

        While many are missing, it has three. The manager may need some seconds for the registrations of 1000 workers.
        If the last of them were lost meanwhile, all their groups would change.
        """
        self._put(WorkerRecord(worker, WorkerState.SUSPECT, now, now + self._times.lease_s))
        self._leases.restored(worker.worker_id)

    def _put(self, record: WorkerRecord) -> None:
        worker_id = record.worker.worker_id
        former = self.records.get(worker_id)
        self.records[worker_id] = record
        if former is None or former.present != record.present or _shown(former.worker) != _shown(record.worker):
            self.edition += 1
        self.reporting.replace(worker_id, former.reports if former is not None else {}, record.reports)
        self._leases.may_end(record)

    def forget(self, worker_id: str) -> None:
        """Forgets a worker. Raises KeyError if it is not known."""
        self.reporting.replace(worker_id, self.records.pop(worker_id).reports, {})
        self._leases.forget(worker_id)
        self.edition += 1

    def forget_job(self, job: str) -> None:
        """Forgets the reports about the groups of a job."""
        for worker_id, record in self.records.items():
            record.unreported = {group for group in record.unreported if group.job != job}
            former = record.reports
            if any(group.job == job for group in former):
                record.reports = {group: report for group, report in former.items() if group.job != job}
                self.reporting.replace(worker_id, former, record.reports)

    def report(self, record: WorkerRecord, report: Report) -> None:
        """The worker has reported a group."""
        if report.stored_files or report.stored_bytes:
            record.unreported.discard(report.group)  # the report counts from now on
        self.reporting.reported(record, report)

    def is_known_as(self, worker: Worker) -> bool:
        """Whether the worker's record says the same of it, with zone and rack."""
        record = self.records.get(worker.worker_id)
        return record is not None and _shown(record.worker) == _shown(worker)

    def may_store(self, worker_id: str, group: GroupId) -> None:
        """The worker may store files of the group from now on that it has not reported when it is lost."""
        if (record := self.records.get(worker_id)) is not None:
            record.unreported.add(group)

    def with_report(self, group: GroupId) -> list[WorkerRecord]:
        """Workers with a report about this group, by id."""
        return [self.records[worker_id] for worker_id in self.reporting.of(group)]

    def process(self, worker_id: str, process_id: str) -> WorkerRecord | None:
        """The record of this process. None if it is unknown, or another process has registered as the worker since."""
        record = self.records.get(worker_id)
        return record if record is not None and record.process_id == process_id else None

    def set_draining(self, worker_id: str, draining: bool) -> bool:
        """Marks a worker as draining, or removes the mark. Returns whether the mark changed."""
        if draining == (worker_id in self.draining):
            return False
        (self.draining.add if draining else self.draining.discard)(worker_id)
        return True

    def present(self) -> list[Worker]:
        return [r.worker for r in self.records.values() if r.present]

    def absent(self) -> list[Worker]:
        return [r.worker for r in self.records.values() if not r.present]

    def place(self, worker: Worker) -> Place:
        """The place of the worker. Members of groups do not know their zones and racks."""
        (known,) = self.known_places([worker])
        return Place(known.host, known.zone, known.rack)

    def known_places(self, workers: Iterable[Worker]) -> list[Worker]:
        """The workers with their zones and racks: members of groups have none."""
        records = self.records
        return [records[w.worker_id].worker if w.worker_id in records else w for w in workers]

    def is_present(self, worker: Worker) -> bool:
        record = self.records.get(worker.worker_id)
        return record is not None and record.present and record.worker.incarnation == worker.incarnation

    def is_live(self, worker: Worker) -> bool:
        record = self.records.get(worker.worker_id)
        return record is not None and record.state is WorkerState.LIVE

    def is_heard_lately(self, worker: Worker, now: float) -> bool:
        """Whether the worker is live and has sent something within a third of a lease.

        A running lease alone says less.
        """
        record = self.records.get(worker.worker_id)
        return record is not None and self.is_live(worker) and now - record.heard_at <= self._times.lease_s / 3

    def taken_by_another(self, worker_id: str, process_id: str) -> bool:
        """Whether another live process uses this worker id."""
        record = self.records.get(worker_id)
        return record is not None and record.state is WorkerState.LIVE and record.process_id not in ("", process_id)

    def register(self, worker: Worker, process_id: str, reports: tuple[Report, ...], now: float) -> WorkerRecord:
        self._heard_of_someone(now)
        record = WorkerRecord(worker, WorkerState.LIVE, now, now + self._times.lease_s, process_id)
        record.reports = {report.group: report for report in reports}
        known = self.records.get(worker.worker_id)
        if known is not None and known.present and known.worker.incarnation == worker.incarnation:
            record.suspected = known.suspected
        self._put(record)
        self._leases.returned(worker.worker_id, now)
        return record

    def beat(self, record: WorkerRecord, now: float) -> None:
        self._heard_of_someone(now)
        record.heard_at = now
        record.lease_ends = now + self._times.lease_s
        record.state = WorkerState.LIVE

    def _heard_of_someone(self, now: float) -> None:
        """A worker has sent something. After a silence, workers lost meanwhile may come back."""
        for record in self._leases.silence_ended(now):
            self.reporting.measure(record.reports)
            self.edition += 1

    def silent(self, now: float) -> bool:
        """Whether no live worker has sent anything for half a lease.

        The manager is then probably cut off: a failure of all workers is less likely.
        """
        return self._leases.silent(now)

    def leave(self, record: WorkerRecord, now: float, *, for_good: bool) -> None:
        """Handles a clean shutdown. Unless `for_good`, the worker has time to be started again."""
        record.state = WorkerState.LOST if for_good else WorkerState.SUSPECT
        record.left, record.lease_ends = True, now + self._times.return_lease_s
        self.reporting.measure(record.reports if for_good else ())
        self.edition += 1
        self._leases.may_end(record)

    def suspect(self, record: WorkerRecord, now: float) -> None:
        if record.state is WorkerState.LIVE:
            record.state = WorkerState.SUSPECT
            record.lease_ends = min(record.lease_ends, now + self._times.suspect_lease_s)
            self._leases.may_end(record)

    def expired(self, now: float) -> list[WorkerRecord]:
        """Present workers after the end of their lease. They are lost from now on.

        Workers lost in silence get another lease once the manager hears from any worker, as after its start.
        """
        gone = self._leases.end(now)
        for record in gone:
            self.reporting.measure(record.reports)
            self.edition += 1
        return gone

    def next_deadline(self) -> float | None:
        """Time of the next call of `expired`. No lease ends before, and perhaps none at this time."""
        return self._leases.deadline


def _shown(worker: Worker) -> tuple[str, ...]:
    """The worker's entry in the list of workers. Workers are equal without zone and rack."""
    return worker.incarnation, worker.host, worker.peer_address, worker.zone, worker.rack
