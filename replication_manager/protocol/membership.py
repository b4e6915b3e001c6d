"""Membership by registration, heartbeat and lease: a failure detector without a clock of its own."""

from __future__ import annotations

import enum
from collections.abc import Iterable
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


class Membership:
    """All workers ever seen, and which of them are being drained."""

    def __init__(self, times: LeaseTimes, draining: Iterable[str] = ()) -> None:
        self._times = times
        self.records: dict[str, WorkerRecord] = {}
        self.draining = set(draining)  # nothing new is placed on these workers

    def restore(self, worker: Worker, now: float) -> None:
        """Restores a worker from the journal. It has one lease to come back."""
        self.records[worker.worker_id] = WorkerRecord(worker, WorkerState.SUSPECT, now, now + self._times.lease_s)

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
        self.records[worker.worker_id] = record
        return record

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
        for record in self.records.values():
            if record.lost_in_silence:
                record.state, record.process_id = WorkerState.SUSPECT, ""  # it must register again
                record.lost_in_silence = False
            elif not (silent and record.present):
                continue
            record.lease_ends = now + self._times.lease_s

    def suspect(self, record: WorkerRecord, now: float) -> None:
        if record.state is WorkerState.LIVE:
            record.state = WorkerState.SUSPECT
            record.lease_ends = min(record.lease_ends, now + self._times.suspect_lease_s)

    def expired(self, now: float) -> list[WorkerRecord]:
        """Present workers whose lease has ended. They are lost from now on.

        Workers lost in silence get another lease once the manager hears from any worker, as after its start.
        """
        gone = [r for r in self.records.values() if r.present and r.lease_ends <= now]
        silent = self.silent(now)
        for record in gone:
            record.state, record.lost_in_silence = WorkerState.LOST, silent
        return gone

    def next_deadline(self) -> float | None:
        return min((r.lease_ends for r in self.records.values() if r.present), default=None)
