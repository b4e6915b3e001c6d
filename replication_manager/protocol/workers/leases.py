"""Ends of the workers' leases, and the effect of a silence of all of them."""

from __future__ import annotations

from collections.abc import Mapping

from replication_manager.protocol.workers.worker_record import WorkerRecord, WorkerState

MANY = 20  # workers: if more of them return or are not heard of at once, the manager may be too busy to hear them
RETURN_LEASES = 3  # that one of many has to return: it tries to connect now and then, and connecting takes some time


class Leases:
    """The leases in the records of all workers. A lease becomes longer all the time: a renewal notes nothing.

    `deadline`: no lease ends before it. None: there is no lease.
    """

    def __init__(self, records: Mapping[str, WorkerRecord], lease_s: float) -> None:
        self._records = records
        self._lease_s = lease_s
        self._returning: set[str] = set()  # restored, and not registered since
        self._returned_at: float | None = None  # when one of them has registered last
        self._any_lost_in_silence = False  # some record may be `lost_in_silence`
        self.deadline: float | None = None

    def restored(self, worker_id: str) -> None:
        """The worker is known from the journal only."""
        self._returning.add(worker_id)

    def forget(self, worker_id: str) -> None:
        self._returning.discard(worker_id)

    def may_end(self, record: WorkerRecord) -> None:
        """The lease of this worker may end earlier than before."""
        if self.deadline is None or record.lease_ends < self.deadline:
            self.deadline = record.lease_ends

    def returned(self, worker_id: str, now: float) -> None:
        """A worker has registered. If it was restored, the other restored workers have another lease to do so."""
        if worker_id not in self._returning:
            return
        self._returning.discard(worker_id)
        self._returned_at = now
        most_are_back = len(self._returning) == MANY
        for other_id in self._records if most_are_back else self._returning:
            other = self._records[other_id]
            if other.present:
                other.lease_ends = max(other.lease_ends, now + self._lease_s)

    def silent(self, now: float) -> bool:
        """Whether no live worker has sent anything for half a lease."""
        records = self._records.values()
        return not any(r.state is WorkerState.LIVE and r.heard_at > now - self._lease_s / 2 for r in records)

    def silence_ended(self, now: float) -> list[WorkerRecord]:
        """A worker sends something. At the end of a silence, renews leases that ended during it, or were about to.

        Returns the workers no longer lost.
        """
        silent = self.silent(now)
        if not (silent or self._any_lost_in_silence):
            return []
        back = []
        for record in self._records.values():
            if record.lost_in_silence:
                record.state, record.process_id = WorkerState.SUSPECT, ""  # it must register again
                record.lost_in_silence = False
                back.append(record)
            elif not (silent and record.present):
                continue
            record.lease_ends = now + self._lease_s
            self.may_end(record)
        self._any_lost_in_silence = False
        return back

    def end(self, now: float) -> list[WorkerRecord]:
        """Marks present workers as lost after the end of their lease, and returns them."""
        if self.deadline is None or now < self.deadline:
            return []
        if self._returned_at is not None and len(self._returning) > MANY:
            # Many workers are registering, so the manager and the network are busy. Whoever counted as lost now would
            # get new copies elsewhere, and that would make them busier.
            patient_until = self._returned_at + RETURN_LEASES * self._lease_s
            if now < patient_until:
                self.deadline = patient_until
                return []
        gone = self._spare([r for r in self._records.values() if r.present and r.lease_ends <= now], now)
        silent = self.silent(now)
        for record in gone:
            record.state, record.lost_in_silence = WorkerState.LOST, silent
            self._any_lost_in_silence = self._any_lost_in_silence or silent
        self.deadline = min((r.lease_ends for r in self._records.values() if r.present), default=None)
        return gone

    def _spare(self, ended: list[WorkerRecord], now: float) -> list[WorkerRecord]:
        """The workers to count as lost.

        If many are not heard of at once, the manager or the network may be too busy. New copies of all their groups
        would make them busier, and even more workers would miss their heartbeats. So a worker with an open stream is
        not lost: gRPC ends the stream of a dead machine within 15 s. A worker with an ended stream has three leases
        from its last word, to connect and register again.
        """
        unheard = sum(self._is_unheard(record, now) for record in self._records.values())
        if unheard <= MANY:
            return ended
        lost = []
        for record in ended:
            until = now + self._lease_s / 2
            if record.state is not WorkerState.LIVE:
                until = min(until, record.heard_at + RETURN_LEASES * self._lease_s)
            if record.left or until <= now:
                lost.append(record)
            else:
                record.lease_ends = until
        return lost

    def _is_unheard(self, record: WorkerRecord, now: float) -> bool:
        """Whether the worker has missed heartbeats, or its stream has ended without a farewell."""
        if not record.present or record.left:
            return False
        return record.state is not WorkerState.LIVE or record.heard_at <= now - self._lease_s / 2
