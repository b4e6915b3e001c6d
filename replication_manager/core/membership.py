"""Membership by registration, heartbeat and lease: a failure detector without a clock of its own."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

from rhino.ids import NO_EPOCH, DiskState, Epoch, GroupId, StoreVersion, Worker


class WorkerState(enum.Enum):
    LIVE = "live"
    SUSPECT = "suspect"  # its stream broke, or the manager has just started; the lease still runs
    LOST = "lost"


@dataclass(frozen=True, slots=True)
class Report:
    """One worker's account of one group (proto: GroupReport)."""

    group: GroupId
    epoch: Epoch
    whole: bool
    stored_bytes: int
    newest_held: tuple[StoreVersion, ...] = ()
    newest_written: tuple[StoreVersion, ...] = ()
    stored_files: int = 0


@dataclass(frozen=True, slots=True)
class Lag:
    """What a worker still owes to `to`, the next in the chain of the group (proto: Lag)."""

    group: GroupId
    to: str
    owed_bytes: int
    oldest_s: float


@dataclass(slots=True)
class WorkerRecord:
    """What the manager knows of a worker. Times are monotonic seconds."""

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
    lags: tuple[Lag, ...] = ()  # of those it sends to
    disk: DiskState = DiskState.OK  # others than OK become no members of further groups
    disk_message: str = ""
    lost_in_silence: bool = False  # while nobody was heard: it may be the manager that was away
    doubted: set[GroupId] = field(default_factory=set)  # in which it is not whole only because its process ended

    @property
    def present(self) -> bool:
        """May be placed on and counted: live, or silent for less than its lease."""
        return self.state is not WorkerState.LOST


class Membership:
    """All workers ever seen. Leases: `lease_s` after a beat, `suspect_lease_s` after the stream broke."""

    def __init__(self, lease_s: float, suspect_lease_s: float) -> None:
        self._lease_s = lease_s
        self._suspect_lease_s = suspect_lease_s
        self.records: dict[str, WorkerRecord] = {}

    def restore(self, worker: Worker, now: float) -> None:
        """A worker from the journal: gets one lease of grace to come back."""
        self.records[worker.worker_id] = WorkerRecord(worker, WorkerState.SUSPECT, now, now + self._lease_s)

    def present(self) -> list[Worker]:
        return [r.worker for r in self.records.values() if r.present]

    def is_present(self, worker: Worker) -> bool:
        record = self.records.get(worker.worker_id)
        return record is not None and record.present and record.worker.incarnation == worker.incarnation

    def is_live(self, worker: Worker) -> bool:
        record = self.records.get(worker.worker_id)
        return record is not None and record.state is WorkerState.LIVE

    def taken_by_another(self, worker_id: str, process_id: str) -> bool:
        """Another process beats under this name."""
        record = self.records.get(worker_id)
        return record is not None and record.state is WorkerState.LIVE and record.process_id not in ("", process_id)

    def register(self, worker: Worker, process_id: str, reports: tuple[Report, ...], now: float) -> WorkerRecord:
        self._end_silence(now)
        record = WorkerRecord(worker, WorkerState.LIVE, now, now + self._lease_s, process_id)
        record.reports = {report.group: report for report in reports}
        known = self.records.get(worker.worker_id)
        if known is not None and known.present and known.worker.incarnation == worker.incarnation:
            record.doubted = known.doubted
        self.records[worker.worker_id] = record
        return record

    def silent(self, now: float) -> bool:
        """Nobody has been heard for half a lease: rather than that all workers went, this manager is cut off."""
        records = self.records.values()
        return not any(r.state is WorkerState.LIVE and r.heard_at > now - self._lease_s / 2 for r in records)

    def leave(self, record: WorkerRecord) -> None:
        """It has said farewell."""
        record.state = WorkerState.LOST

    def beat(self, record: WorkerRecord, now: float) -> None:
        self._end_silence(now)
        record.heard_at = now
        record.lease_ends = now + self._lease_s
        record.state = WorkerState.LIVE

    def _end_silence(self, now: float) -> None:
        """Before somebody is heard: who was lost while nobody was, or was about to be, may be heard soon."""
        silent = self.silent(now)
        for record in self.records.values():
            if record.lost_in_silence:
                record.state, record.process_id = WorkerState.SUSPECT, ""  # is to register again
                record.lost_in_silence = False
            elif not (silent and record.present):
                continue
            record.lease_ends = now + self._lease_s

    def suspect(self, record: WorkerRecord, now: float) -> None:
        if record.state is WorkerState.LIVE:
            record.state = WorkerState.SUSPECT
            record.lease_ends = min(record.lease_ends, now + self._suspect_lease_s)

    def expired(self, now: float) -> list[WorkerRecord]:
        """Present workers whose lease has ended; they are lost from now on.

        Those that are lost in silence get another lease once somebody is heard, like all workers of a new manager.
        """
        gone = [r for r in self.records.values() if r.present and r.lease_ends <= now]
        silent = self.silent(now)
        for record in gone:
            record.state, record.lost_in_silence = WorkerState.LOST, silent
        return gone

    def next_deadline(self) -> float | None:
        return min((r.lease_ends for r in self.records.values() if r.present), default=None)
