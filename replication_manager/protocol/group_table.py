"""All replica groups of the manager, by id and by partition."""

from __future__ import annotations

from collections.abc import Iterable

from rhino_core.ids import GroupId, ReplicaGroup
from rhino_core.planning.copysets import Copysets


class GroupTable:
    """`by_id` is for reading. Only `put` and `drop` change it. `copysets`: the sets of workers that hold the groups."""

    def __init__(self, groups: Iterable[ReplicaGroup]) -> None:
        self.by_id: dict[GroupId, ReplicaGroup] = {}
        self._by_partition: dict[tuple[str, int], list[GroupId]] = {}  # key: job, partition
        self.copysets = Copysets()
        for group in groups:
            self.put(group)

    def put(self, group: ReplicaGroup) -> None:
        """Adds a group, or replaces it."""
        known = self.by_id.get(group.group)
        if known is None:
            self._by_partition.setdefault((group.group.job, group.group.partition), []).append(group.group)
        self.by_id[group.group] = group
        now, before = _workers(group), _workers(known) if known is not None else frozenset()
        if now != before:
            self.copysets.add(now)
            if known is not None:
                self.copysets.remove(before)

    def drop(self, group: GroupId) -> None:
        """Removes a group. Raises KeyError if there is none."""
        self.copysets.remove(_workers(self.by_id.pop(group)))
        partition = group.job, group.partition
        self._by_partition[partition].remove(group)
        if not self._by_partition[partition]:
            del self._by_partition[partition]

    def related(self, group: GroupId) -> list[ReplicaGroup]:
        """Groups of the same partition of the same job: those of other operators. Spark may run these in one task."""
        return [self.by_id[g] for g in self._by_partition.get((group.job, group.partition), ()) if g != group]

    def fewest_whole_first(self) -> list[ReplicaGroup]:
        """All groups, those with the fewest whole members first: they need another copy most."""
        return sorted(self.by_id.values(), key=lambda g: sum(m.whole for m in g.members))


def _workers(group: ReplicaGroup) -> frozenset[str]:
    return frozenset(member.worker.worker_id for member in group.members)
