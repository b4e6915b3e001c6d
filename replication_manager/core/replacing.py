"""How laggards leave their groups: not before enough others are whole, and what happens when that takes too long."""

from __future__ import annotations

from replication_manager.core import events as ev
from replication_manager.core import groups as rules
from replication_manager.core.chains import Chains
from replication_manager.core.lagging import Laggards, Leaving
from replication_manager.core.membership import Membership
from rhino.ids import BelowMinCopies, ReplicaGroup


class Replacements:
    """Between who lags (`Laggards`) and the groups (`Chains`)."""

    def __init__(self, laggards: Laggards, chains: Chains, membership: Membership) -> None:
        self._laggards = laggards
        self._chains = chains
        self._membership = membership

    def due(self, now: float) -> list[ev.Effect]:
        """Those that have rested may be placed again; those that lag go."""
        effects = self._chains.mend_all() if self._laggards.rested(now) else []
        proved = self._laggards.judge(self._membership.records.values(), self._chains.groups, now)
        leaving = {(group, leaving.worker_id) for group, leaving in self._laggards.leaving.items()}
        for group_id, worker_id in sorted(leaving.union(proved)):
            group = self._chains.groups.get(group_id)
            if group is None or group.member(worker_id) is None:
                self._laggards.leaving.pop(group_id, None)
            elif group.owner.worker_id != worker_id:
                effects += self._part_from(group, worker_id, now, lags=(group_id, worker_id) in proved)
            elif (group_id, worker_id) in leaving:
                effects += self._keep_as_owner(group)
        return effects

    def _part_from(self, group: ReplicaGroup, worker_id: str, now: float, *, lags: bool) -> list[ev.Effect]:
        """While the others are fewer than min_copies whole ones, another member is placed first.

        That one cannot become whole while the laggard answers nobody: so under DEGRADED patience ends.
        """
        leaving = self._laggards.leaving.get(group.group)
        degraded = group.settings.below_min_copies is BelowMinCopies.DEGRADED
        overdue = lags and leaving is not None and leaving.overdue(now) and degraded
        others = tuple(m for m in group.members if m.worker.worker_id != worker_id)
        if self._whole(others) >= (1 if overdue else group.settings.copies):
            self._laggards.leaving.pop(group.group, None)
            self._laggards.dropped(worker_id, now)
            return self._chains.mend(group, others)
        if len(group.members) > group.settings.replication_factor + 1:
            return []
        self._laggards.leaving.pop(group.group, None)
        added = self._chains.one_more(group) if lags else []
        if added:
            self._laggards.leaving[group.group] = Leaving(worker_id, now)
        return added

    def _keep_as_owner(self, group: ReplicaGroup) -> list[ev.Effect]:
        """A laggard has become the owner before another one had taken its place: the end of the chain goes."""
        longer = len(group.members) > group.settings.replication_factor + 1
        if longer and self._whole(group.members[:-1]) < group.settings.copies:
            return []
        self._laggards.leaving.pop(group.group, None)
        return self._chains.mend(group, group.members[:-1]) if longer else []

    def _whole(self, members: rules.Members) -> int:
        return sum(m.whole and self._membership.is_present(m.worker) for m in members)
