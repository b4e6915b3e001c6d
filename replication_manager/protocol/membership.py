"""Membership by registration, heartbeat and lease: a failure detector without a clock of its own."""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from rhino_core.ids import NO_EPOCH, DiskState, Epoch, GroupId, StoreVersion, Worker
from rhino_core.planning.spread import Place

RETURN_LEASE_S = 10.0  # time to restart a sidecar that shut down cleanly


class WorkerState(enum.Enum):
    LIVE = "live"
    SUSPECT = "suspect"  # its stream broke, or the manager has just started; the lease still runs
    LOST = "lost"


@dataclass(frozen=True, slots=True)
class Report:
    """One worker's report on one group (proto: GroupReport)."""

    group: GroupId
    epoch: Epoch
    whole: bool
    stored_bytes: int
    newest_held: tuple[StoreVersion, ...] = ()
    newest_written: tuple[StoreVersion, ...] = ()
    stored_files: int = 0


@dataclass(frozen=True, slots=True)
class Lag:
    """How far worker `to` is behind with the files that another worker pushes to it (proto: Lag)."""

    group: GroupId
    to: str
    lag_bytes: int
    oldest_s: float


@dataclass(slots=True)
class WorkerRecord:
    """A worker as the manager knows it. Times are monotonic seconds."""

    worker: Worker
    state: WorkerState
    heard_at: float
    lease_ends: float
    process_id: str = ""
    stored_bytes: int = 0
    free_bytes: int = 0
    resident_bytes_max: int = 0
    replicated_bytes: int = 0
    highest_epoch: Epoch = NO_EPOCH
    reports: dict[GroupId, Report] = field(default_factory=dict)
    lags: tuple[Lag, ...] = ()  # of the workers it sends to
    disk: DiskState = DiskState.OK  # a worker that is not OK joins no further groups
    disk_message: str = ""
    version: str = ""  # of Rhino, for people; empty: not reported
    # its lease ended while the manager heard from no worker: the manager itself may have been cut off
    lost_in_silence: bool = False
    left: bool = False  # it shut down cleanly, and may be started again
    # groups in which it does not count as whole, only because its process ended
    suspected: set[GroupId] = field(default_factory=set)

    @property
    def present(self) -> bool:
        """Whether it may be placed on and counted: live, or its lease still runs."""
        return self.state is not WorkerState.LOST

    @property
    def ended(self) -> bool:
        """Lost, or known to have ended."""
        return self.left or not self.present


@dataclass(frozen=True, slots=True)
class LeaseTimes:
    """Lengths of a lease: after a heartbeat, after the stream broke, and after a clean shutdown."""

    lease_s: float
    suspect_lease_s: float
    return_lease_s: float = RETURN_LEASE_S


class Reporting:
    """Which workers have reported something about a group. Nearly all groups have a few of them."""

    def __init__(self) -> None:
        self._workers: dict[GroupId, tuple[str, ...]] = {}

    def of(self, group: GroupId) -> tuple[str, ...]:
        """Ids of workers, in their order."""
        return self._workers.get(group, ())

    def add(self, worker_id: str, group: GroupId) -> None:
        known = self._workers.get(group, ())
        if worker_id not in known:
            self._workers[group] = tuple(sorted((*known, worker_id)))

    def replace(self, worker_id: str, former: Iterable[GroupId], now: Collection[GroupId]) -> None:
        """The worker has reported other groups than before."""
        for group in former:
            if group not in now:
                left = tuple(other for other in self.of(group) if other != worker_id)
                if left:
                    self._workers[group] = left
                else:
                    self._workers.pop(group, None)
        for group in now:
            self.add(worker_id, group)


class Membership:
    """All workers ever seen, and which of them are being drained.

    A heartbeat must not cost more if there are many workers: 1000 of them send 2000 a second. `reporting` finds the
    reports about a group. `lagging` has the ids of workers whose newest heartbeat has lags. `edition` rises whenever a
    worker comes, goes, or is another one than before.
    """

    def __init__(self, times: LeaseTimes, draining: Iterable[str] = ()) -> None:
        self._times = times
        self.records: dict[str, WorkerRecord] = {}
        self.draining = set(draining)  # nothing new is placed on these workers
        self.reporting = Reporting()
        self.lagging: dict[str, None] = {}
        self.edition = 0
        self._returning: set[str] = set()  # restored, and not registered since
        self._any_lost_in_silence = False  # some record may be `lost_in_silence`
        self._deadline: float | None = None  # no lease ends before it; leases become longer all the time

    def restore(self, worker: Worker, now: float) -> None:
        """Restores a worker from the journal. It has one lease to come back, from the newest return of another one.

        The manager may need some seconds for the registrations of 1000 workers. If the last of them were lost
        meanwhile, all their groups would change.
        """
        self._put(WorkerRecord(worker, WorkerState.SUSPECT, now, now + self._times.lease_s))
        self._returning.add(worker.worker_id)

    def _put(self, record: WorkerRecord) -> None:
        worker_id = record.worker.worker_id
        former = self.records.get(worker_id)
        self.records[worker_id] = record
        self.edition += 1
        self.reporting.replace(worker_id, former.reports if former is not None else {}, record.reports)
        self.lagging.pop(worker_id, None)
        self._ends(record)

    def _ends(self, record: WorkerRecord) -> None:
        """The lease of this worker may end earlier than before."""
        if self._deadline is None or record.lease_ends < self._deadline:
            self._deadline = record.lease_ends

    def forget(self, worker_id: str) -> None:
        """Forgets a worker. Raises KeyError if it is not known."""
        self.reporting.replace(worker_id, self.records.pop(worker_id).reports, {})
        self._returning.discard(worker_id)
        self.edition += 1
        self.lagging.pop(worker_id, None)

    def forget_job(self, job: str) -> None:
        """Forgets the reports about the groups of a job."""
        for worker_id, record in self.records.items():
            kept = {group: report for group, report in record.reports.items() if group.job != job}
            self.reporting.replace(worker_id, record.reports, kept)
            record.reports = kept

    def report(self, record: WorkerRecord, report: Report) -> None:
        """The worker has reported a group."""
        former = record.reports.get(report.group)
        record.reports[report.group] = report
        if former is None:
            self.reporting.add(record.worker.worker_id, report.group)

    def set_lags(self, record: WorkerRecord, lags: tuple[Lag, ...]) -> None:
        """The lags of the worker's newest heartbeat."""
        record.lags = lags
        if lags:
            self.lagging[record.worker.worker_id] = None
        else:
            self.lagging.pop(record.worker.worker_id, None)

    def with_report(self, group: GroupId) -> list[WorkerRecord]:
        """Workers that have reported something about this group, by their ids."""
        return [self.records[worker_id] for worker_id in self.reporting.of(group)]

    def process(self, worker_id: str, process_id: str) -> WorkerRecord | None:
        """The record of this process. None if it is unknown, or another process has registered as the worker since."""
        record = self.records.get(worker_id)
        return record if record is not None and record.process_id == process_id else None

    def set_draining(self, worker_id: str, draining: bool) -> bool:
        """Marks a worker as draining, or removes the mark. Returns whether that is a change."""
        if draining == (worker_id in self.draining):
            return False
        (self.draining.add if draining else self.draining.discard)(worker_id)
        return True

    def present(self) -> list[Worker]:
        return [r.worker for r in self.records.values() if r.present]

    def absent(self) -> list[Worker]:
        return [r.worker for r in self.records.values() if not r.present]

    def place(self, worker: Worker) -> Place:
        """Where the worker is. Members of groups do not know their zones and racks."""
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
        self._end_silence(now)
        record = WorkerRecord(worker, WorkerState.LIVE, now, now + self._times.lease_s, process_id)
        record.reports = {report.group: report for report in reports}
        known = self.records.get(worker.worker_id)
        if known is not None and known.present and known.worker.incarnation == worker.incarnation:
            record.suspected = known.suspected
        self._put(record)
        self._has_returned(record, now)
        return record

    def _has_returned(self, record: WorkerRecord, now: float) -> None:
        """A worker has registered. If it was restored, the others that were have another lease to do so."""
        if record.worker.worker_id not in self._returning:
            return
        self._returning.discard(record.worker.worker_id)
        for worker_id in self._returning:
            other = self.records[worker_id]
            if other.present:
                other.lease_ends = max(other.lease_ends, now + self._times.lease_s)

    def silent(self, now: float) -> bool:
        """Whether no live worker has sent anything for half a lease.

        It is then more likely that this manager is cut off than that all workers have failed.
        """
        records = self.records.values()
        return not any(r.state is WorkerState.LIVE and r.heard_at > now - self._times.lease_s / 2 for r in records)

    def leave(self, record: WorkerRecord, now: float, *, for_good: bool) -> None:
        """Handles a clean shutdown. Unless `for_good`, the worker has time to be started again."""
        record.state = WorkerState.LOST if for_good else WorkerState.SUSPECT
        record.left, record.lease_ends = True, now + self._times.return_lease_s
        self.edition += 1
        self._ends(record)

    def beat(self, record: WorkerRecord, now: float) -> None:
        self._end_silence(now)
        record.heard_at = now
        record.lease_ends = now + self._times.lease_s
        record.state = WorkerState.LIVE

    def _end_silence(self, now: float) -> None:
        """Renews leases when a worker sends something after a silence.

        Workers whose lease ended during the silence, or was about to end, may send a heartbeat soon.
        """
        silent = self.silent(now)
        if not (silent or self._any_lost_in_silence):
            return
        for record in self.records.values():
            if record.lost_in_silence:
                record.state, record.process_id = WorkerState.SUSPECT, ""  # it must register again
                record.lost_in_silence = False
                self.edition += 1
            elif not (silent and record.present):
                continue
            record.lease_ends = now + self._times.lease_s
            self._ends(record)
        self._any_lost_in_silence = False

    def suspect(self, record: WorkerRecord, now: float) -> None:
        if record.state is WorkerState.LIVE:
            record.state = WorkerState.SUSPECT
            record.lease_ends = min(record.lease_ends, now + self._times.suspect_lease_s)
            self._ends(record)

    def expired(self, now: float) -> list[WorkerRecord]:
        """Present workers whose lease has ended. They are lost from now on.

        Workers lost in silence get another lease once the manager hears from any worker, as after its start.
        """
        if self._deadline is None or now < self._deadline:
            return []
        gone = [r for r in self.records.values() if r.present and r.lease_ends <= now]
        silent = self.silent(now)
        for record in gone:
            record.state, record.lost_in_silence = WorkerState.LOST, silent
            self.edition += 1
            self._any_lost_in_silence = self._any_lost_in_silence or silent
        self._deadline = min((r.lease_ends for r in self.records.values() if r.present), default=None)
        return gone

    def next_deadline(self) -> float | None:
        """When `expired` has to be called next. No lease ends before that, and perhaps none at that time."""
        return self._deadline
