"""Laggards leave their groups once enough other members are whole, or when that takes too long."""

from __future__ import annotations

from dataclasses import replace

from replication_manager.protocol import events as ev
from replication_manager.protocol.changes.chains import Chains
from replication_manager.protocol.groups import rules
from replication_manager.protocol.groups.logged import LoggedVersions
from replication_manager.protocol.groups.returned import covered
from replication_manager.protocol.placement.lagging import Laggards, LeavingLaggard
from replication_manager.protocol.workers.membership import Membership
from replication_manager.protocol.workers.worker_record import WorkerRecord
from rhino_core.ids import BelowMinCopies, GroupId, ReplicaGroup, StoreVersion


class Replacements:
    """Removes laggards (`Laggards`) from their groups (`Chains`)."""

    def __init__(self, laggards: Laggards, chains: Chains, membership: Membership, logged: LoggedVersions) -> None:
        self._laggards = laggards
        self._chains = chains
        self._membership = membership
        self._logged = logged

    def due(self, record: WorkerRecord, now: float) -> list[ev.Effect]:
        """Places workers again after their cooldown, and removes laggards. `record`: of the worker just heard."""
        effects = self._chains.repair_around() if self._laggards.cooldown_ended(now) else []
        proved = self._laggards.judge(record, now)
        for group_id, worker_id in sorted({*proved, *self._leaving_near(record.worker.worker_id)}):
            group, leaving = self._chains.groups.get(group_id), self._laggards.leaving.get(group_id)
            if group is None or group.member(worker_id) is None:
                self._laggards.leaving.pop(group_id, None)
            elif group.owner.worker_id != worker_id:
                lags = (group_id, worker_id) in proved or self._laggards.proved(group_id, worker_id, now)
                effects += self._part_from(group, worker_id, now, lags=lags)
            elif leaving is not None and leaving.worker_id == worker_id:
                effects += self._keep_as_owner(group, leaving)
        return effects

    def forget(self, worker_id: str) -> None:
        """The worker has registered, so its former process has reported no lags."""
        self._laggards.forget(worker_id)

    def _leaving_near(self, worker_id: str) -> list[tuple[GroupId, str]]:
        """Leaving laggards in groups of this worker, and entries of ended groups."""
        groups, mine = self._chains.groups, self._chains.member_of(worker_id)
        leaving = self._laggards.leaving.items()
        return [(group, laggard.worker_id) for group, laggard in leaving if group in mine or group not in groups]

    def take_back(self, record: WorkerRecord) -> list[ev.Effect]:
        """Lets a replaced worker return to its groups: it has less to copy than its replacement.

        Not while the chain is longer than its normal length: then a member was added on purpose. Not if a version of
        the replacement would then have no copy in the group.
        """
        effects: list[ev.Effect] = []
        for group_id in sorted(record.reports):
            group = self._chains.groups.get(group_id)
            if group is None or group.member(record.worker.worker_id) is not None:
                continue
            normal = 1 < len(group.members) <= group.settings.replication_factor + 1
            if normal and self._replaceable(group, record):
                effects += self._chains.swap(group, record.worker)
        return effects

    def _replaceable(self, group: ReplicaGroup, returning: WorkerRecord) -> bool:
        """Whether the returning worker or a present whole member holds all versions of the last member."""
        records, present = self._membership.records, self._membership.is_present
        whole = [records[m.worker.worker_id] for m in group.members if m.whole and present(m.worker)]
        held = [v for r in (returning, *whole) if (report := r.reports.get(group.group)) for v in report.newest_held]
        last = records[group.members[-1].worker.worker_id].reports.get(group.group)
        logged = self._logged.newest_by_store(group.group)
        return last is None or all(covered(version, held, logged.get(version.store)) for version in last.newest_held)

    def _part_from(self, group: ReplicaGroup, worker_id: str, now: float, *, lags: bool) -> list[ev.Effect]:
        """Removes a laggard. If fewer than min_copies other members are whole, adds another member first.

        A chain longer than usual gets no further member: one is about to become whole already. None can become whole
        while the laggard hangs, because it does not answer. So under DEGRADED a hanging laggard leaves.
        """
        others = tuple(m for m in group.members if m.worker.worker_id != worker_id)
        if self._whole(others) >= group.settings.copies:
            return self._drop(group, others, worker_id, now)
        leaving = self._followed(group, now)
        if leaving is not None and leaving.worker_id != worker_id:
            return []
        longer = len(group.members) > group.settings.replication_factor + 1
        added = self._chains.extend(group, worker_id) if lags and not longer else []
        if added or (lags and leaving is None):
            replacement = self._chains.groups[group.group].members[-1].worker.worker_id if added else ""
            self._laggards.leaving[group.group] = LeavingLaggard(
                worker_id, replacement, self._held(group, worker_id), now
            )
            return added
        degraded = group.settings.below_min_copies is BelowMinCopies.DEGRADED
        if degraded and leaving is not None and leaving.hangs(now) and self._whole(others):
            return self._drop(group, others, worker_id, now)
        return []

    def _drop(self, group: ReplicaGroup, others: rules.Members, worker_id: str, now: float) -> list[ev.Effect]:
        leaving = self._laggards.leaving.get(group.group)
        if leaving is not None and leaving.worker_id == worker_id:
            del self._laggards.leaving[group.group]
        self._laggards.dropped(group.group, worker_id, now)
        return self._chains.repair(group, others)

    def _followed(self, group: ReplicaGroup, now: float) -> LeavingLaggard | None:
        """The next laggard to leave the group.

        Its time begins again while nobody waits for it, and when it has stored another version. In the second case it
        may stay, unless its replacement is under way.
        """
        leaving = self._laggards.leaving.get(group.group)
        if leaving is None or group.member(leaving.worker_id) is None:
            return None
        held = self._held(group, leaving.worker_id)
        if held != leaving.held and group.member(leaving.replacement) is None:
            del self._laggards.leaving[group.group]
            return None
        if held != leaving.held or not self._is_waited_for(group, leaving.worker_id):
            leaving = self._laggards.leaving[group.group] = replace(leaving, held=held, since=now)
        return leaving

    def _held(self, group: ReplicaGroup, worker_id: str) -> frozenset[StoreVersion]:
        report = self._membership.records[worker_id].reports.get(group.group)
        return frozenset(report.newest_held) if report is not None else frozenset()

    def _is_waited_for(self, group: ReplicaGroup, worker_id: str) -> bool:
        """Whether a member waits for this one to store a changelog or zip, since a moment at least."""
        records = (self._membership.records[m.worker.worker_id] for m in group.members)
        lags = (lag for record in records for lag in record.lags)
        return any(lag.group == group.group and lag.to == worker_id and lag.oldest_s > 0 for lag in lags)

    def _keep_as_owner(self, group: ReplicaGroup, leaving: LeavingLaggard) -> list[ev.Effect]:
        """Keeps a laggard as the new owner. Its replacement, not whole yet, leaves."""
        others = tuple(m for m in group.members if m.worker.worker_id != leaving.replacement)
        longer = len(group.members) > group.settings.replication_factor + 1
        if longer and self._whole(others) < group.settings.copies:
            return []
        del self._laggards.leaving[group.group]
        return self._chains.repair(group, others) if longer and len(others) < len(group.members) else []

    def _whole(self, members: rules.Members) -> int:
        return sum(m.whole and self._membership.is_present(m.worker) for m in members)
