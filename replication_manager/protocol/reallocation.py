"""Copies move when the loads of a query have changed (Madsen & Zhou, CIKM 2015, section 5: re-allocation)."""

from __future__ import annotations

from replication_manager.protocol import events as ev
from replication_manager.protocol.better_places import Swap
from replication_manager.protocol.chains import Chains
from replication_manager.protocol.membership import Membership
from replication_manager.protocol.placing import Placing
from rhino_core.ids import GroupId, ReplicaGroup


class Reallocation:
    """Swaps copies: the new member joins, and the old one leaves once all others are whole.

    Not journalled. After a restart of the manager both members stay until the owner of their group changes.
    """

    def __init__(self, chains: Chains, placing: Placing, membership: Membership) -> None:
        self._chains = chains
        self._placing = placing
        self._membership = membership
        self._running: dict[GroupId, Swap] = {}

    def loads_seen(self, event: ev.BatchPublished) -> list[ev.Effect]:
        """Counts the loads of a batch. Every so many batches copies may begin to move, unless some do already."""
        if not self._placing.loads_seen(event):
            return []
        self._running = {name: swap for name, swap in self._running.items() if name in self._chains.groups}
        if any(name.job == event.job for name in self._running):
            return []
        effects: list[ev.Effect] = []
        for swap in self._placing.better_places(event.job):
            group, target = self._chains.groups[swap.group], self._membership.records[swap.target.worker].worker
            joined = self._chains.join(group, target)
            if joined:
                self._running[swap.group] = swap
                self._placing.decisions.moved(swap, self._placing.now)
            effects += joined
        return effects

    def go_on(self, group_id: GroupId) -> list[ev.Effect]:
        """Lets the old member leave if it may. Call it when a member may have become whole."""
        swap, group = self._running.get(group_id), self._chains.groups.get(group_id)
        if swap is None:
            return []
        if group is None or self._is_over(swap, group):
            del self._running[group_id]
            return []
        origin, target = swap.origin.worker, swap.target.worker
        leaving = origin if group.owner.worker_id != origin else target
        others = tuple(m for m in group.members if m.worker.worker_id != leaving)
        if not all(m.whole and self._membership.is_present(m.worker) for m in others):
            return []
        del self._running[group_id]
        return self._chains.repair(group, others)

    @staticmethod
    def _is_over(swap: Swap, group: ReplicaGroup) -> bool:
        """Whether something else has changed the group meanwhile, such as a loss or a handover."""
        both = all(group.member(worker) is not None for worker in (swap.origin.worker, swap.target.worker))
        return not both or len(group.members) <= group.settings.replication_factor + 1
