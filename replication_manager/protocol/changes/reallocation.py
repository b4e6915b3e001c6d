"""Copies move when the loads of a query have changed (Madsen & Zhou, CIKM 2015, section 5: re-allocation)."""

from __future__ import annotations

from replication_manager.protocol import events as ev
from replication_manager.protocol.changes.chains import Chains
from replication_manager.protocol.groups.returned import Returned
from replication_manager.protocol.placement.better_places import Swap
from replication_manager.protocol.placement.placing import Placing
from replication_manager.protocol.workers.membership import Membership
from rhino_core.ids import GroupId, ReplicaGroup


class Reallocation:
    """Swaps copies: the new member joins, and the old one leaves once all others are whole.

    A group in a handover is left as it is: its target may be the old member. Not journalled. After a restart of the
    manager both members stay until the owner of their group changes.
    """

    def __init__(self, chains: Chains, placing: Placing, membership: Membership, returned: Returned) -> None:
        self._chains = chains
        self._placing = placing
        self._membership = membership
        self._returned = returned
        self._running: dict[GroupId, Swap] = {}
        self._stored: dict[GroupId, int] = {}  # bytes of the new member at the end of the newest round

    def loads_seen(self, event: ev.BatchPublished) -> list[ev.Effect]:
        """Counts the loads of a batch. Every so many batches copies may begin to move, unless some do already."""
        if not self._placing.loads_seen(event):
            return []
        self._running = {name: swap for name, swap in self._running.items() if name in self._chains.groups}
        self._stored = {name: stored for name, stored in self._stored.items() if name in self._running}
        if running := [name for name in self._running if name.job == event.job]:
            return [effect for name in running for effect in self._give_up_if_stalled(name)]
        effects: list[ev.Effect] = []
        for swap in self._placing.better_places(event.job):
            if self._returned.is_handed_over(swap.group):
                continue
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
        if self._returned.is_handed_over(group_id):
            return []
        origin, target = swap.origin.worker, swap.target.worker
        leaving = origin if group.owner.worker_id != origin else target
        others = tuple(m for m in group.members if m.worker.worker_id != leaving)
        if not all(m.whole and self._membership.is_present(m.worker) for m in others):
            return []
        del self._running[group_id]
        return self._chains.repair(group, others)

    def _give_up_if_stalled(self, group_id: GroupId) -> list[ev.Effect]:
        """Removes a new member that is not whole and got no byte in a round. The chain would stay longer for ever."""
        swap, group = self._running[group_id], self._chains.groups[group_id]
        member = group.member(swap.target.worker)
        if member is None or member.whole or self._returned.is_handed_over(group_id):
            return []
        report = self._membership.records[swap.target.worker].reports.get(group_id)
        stored, before = report.stored_bytes if report is not None else 0, self._stored.get(group_id, -1)
        self._stored[group_id] = stored
        if stored > before:
            return []
        del self._running[group_id]
        return self._chains.repair(group, tuple(m for m in group.members if m is not member))

    @staticmethod
    def _is_over(swap: Swap, group: ReplicaGroup) -> bool:
        """Whether something else has changed the group meanwhile, such as a loss or a handover."""
        both = all(group.member(worker) is not None for worker in (swap.origin.worker, swap.target.worker))
        return not both or len(group.members) <= group.settings.replication_factor + 1
