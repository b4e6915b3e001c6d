"""Impaired workers: alive, but their disk takes no files, or none of their files arrives elsewhere.

An impaired member neither owns a group nor counts as whole while another whole member is fit
(`groups.without_impaired`). No copy is moved because of it. It keeps its membership, and catches up again once it has
been well for a while.
"""

from __future__ import annotations

from collections.abc import Collection

from replication_manager.protocol.groups.group_table import GroupTable
from replication_manager.protocol.workers.membership import Membership
from replication_manager.protocol.workers.worker_record import WorkerRecord
from rhino_core.ids import DiskState, GroupId, ReplicaGroup, StoreVersion

MUTE_S = 3.0  # a worker is mute if all its receivers have lacked a changelog or zip of it for longer than this
# A mute worker counts as impaired after this time. A process that was stopped may only need a moment to recover.
PROOF_S = 1.0
# A worker that is well again counts after this time, because full disks and broken links tend to recur.
CALM_S = 5.0
CALM = 0.5  # part of MUTE_S: a mute worker has recovered when its oldest debt is younger


class Impaired:
    """The impaired workers. Not journalled: a restarted manager learns of disks and lags from heartbeats."""

    def __init__(self, membership: Membership, table: GroupTable) -> None:
        self._membership = membership
        self._table = table
        self._ids: dict[str, float | None] = {}  # with the time since which nothing was wrong
        self._mute_since: dict[str, float] = {}  # also before the proof is complete
        # by worker that lags with one receiver: that receiver, and what it held of others' groups when that began
        self._held_before: dict[str, tuple[str, dict[GroupId, frozenset[StoreVersion]]]] = {}

    def ids(self) -> Collection[str]:
        return self._ids.keys()

    def mute(self) -> Collection[str]:
        """Workers from which nothing arrives, proved or only suspected."""
        return self._mute_since.keys()

    def judge(self, record: WorkerRecord, now: float) -> bool:
        """Judges a worker by its latest report. Returns whether it became impaired or has recovered."""
        me = record.worker.worker_id
        if self._is_mute(record, now):
            self._mute_since.setdefault(me, now)
        else:
            self._mute_since.pop(me, None)
        proved = me in self._mute_since and now - self._mute_since[me] >= PROOF_S
        if record.disk is not DiskState.OK or proved or (me in self._ids and me in self._mute_since):
            new = me not in self._ids
            self._ids[me] = None
            return new
        if me not in self._ids:
            return False
        well_since = self._ids[me]
        if well_since is None:
            self._ids[me] = well_since = now
        if now - well_since < CALM_S:
            return False
        del self._ids[me]
        return True

    def may_have_missed(self, group: ReplicaGroup, worker_id: str) -> bool:
        """Whether the worker may lack files that it refused or was never offered, whatever it reports."""
        others = (m.worker for m in group.members if m.whole and m.worker.worker_id != worker_id)
        return worker_id in self._ids and any(self._membership.is_present(other) for other in others)

    def forget(self, worker_id: str) -> None:
        self._ids.pop(worker_id, None)
        self._mute_since.pop(worker_id, None)
        self._held_before.pop(worker_id, None)

    def _is_mute(self, record: WorkerRecord, now: float) -> bool:
        """Whether the worker is mute: it lags with the first fit member of each chain that it owns.

        Lags count only in its own groups, because members of others may refuse its files. Chains count only in jobs
        with such a lag. The receivers must not be at fault: there are several of them, or files of another sender reach
        the only one.
        """
        me = record.worker.worker_id
        bar_s = MUTE_S * CALM if me in self._mute_since else MUTE_S
        mine = self._table.of_worker(me) if record.lags else ()
        lags = [lag for lag in record.lags if lag.oldest_s > bar_s and lag.group in mine]
        late = {lag.to for lag in lags if self._is_fit(lag.to, now)}
        if not late:
            self._held_before.pop(me, None)
            return False
        jobs = {lag.group.job for lag in lags}
        owned = [g for g in self._table.groups_of(me) if g.group.job in jobs and g.owner.worker_id == me]
        firsts = {first for group in owned if (first := self._first(group, now))}
        known = me in self._ids  # it may own no group any more
        if not known and not (firsts and firsts <= late):
            return False
        return len(late) > 1 or self._is_reached(next(iter(late)), me, now)

    def _is_reached(self, to: str, but: str, now: float) -> bool:
        """Whether a file of another owner has reached this receiver since the worker `but` lags with it alone.

        An owner without a lag proves nothing: its query may be idle.
        """
        others = [
            g.group
            for g in self._table.groups_of(to)
            if g.owner.worker_id not in (to, but) and self._first(g, now) == to and self._waits_not(g, to, now)
        ]
        reports = self._membership.records[to].reports
        found = {group: report for group in others if (report := reports.get(group)) is not None}
        known, before = self._held_before.get(but, ("", {}))
        if known != to:
            before = {}
            self._held_before[but] = to, before
        for group, report in found.items():
            before.setdefault(group, frozenset(report.newest_held))
        return any({*r.newest_held}.difference(r.newest_written, before[group]) for group, r in found.items())

    def _waits_not(self, group: ReplicaGroup, to: str, now: float) -> bool:
        """Whether the owner of the group is fit, and lags with this receiver in no group."""
        sender = group.owner.worker_id
        return self._is_fit(sender, now) and all(lag.to != to for lag in self._membership.records[sender].lags)

    def _first(self, group: ReplicaGroup, now: float) -> str:
        others = (m.worker.worker_id for m in group.members[1:])
        return next((worker_id for worker_id in others if self._is_fit(worker_id, now)), "")

    def _is_fit(self, worker_id: str, now: float) -> bool:
        record = self._membership.records.get(worker_id)
        well = record is not None and record.disk is DiskState.OK and worker_id not in self._ids
        return well and record is not None and self._membership.is_heard_lately(record.worker, now)
