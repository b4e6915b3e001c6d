"""All replica groups of the manager, by id, by partition, by job and by member."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable

from rhino_core.ids import GroupId, ReplicaGroup
from rhino_core.planning.copysets import Copysets

Ids = dict[GroupId, None]  # a set with an order: that of time


class GroupTable:
    """`by_id` is for reading. Only `put` and `drop` change it. `copysets`: the sets of workers that hold the groups.

    There may be 100 000 groups. What happens to a worker or a job is about few of them, so each of these has an index.
    `owned` counts the groups of each owner.
    """

    def __init__(self, groups: Iterable[ReplicaGroup]) -> None:
        self.by_id: dict[GroupId, ReplicaGroup] = {}
        self.owned = Counter[str]()
        self.copysets = Copysets()
        self._by_partition: dict[tuple[str, int], list[GroupId]] = {}  # key: job, partition
        self._by_job: dict[str, Ids] = {}
        self._by_member: dict[str, Ids] = {}
        self._short: Ids = {}  # with fewer members than their settings ask for
        for group in groups:
            self.put(group)

    def put(self, group: ReplicaGroup) -> None:
        """Adds a group, or replaces it."""
        known, name = self.by_id.get(group.group), group.group
        if known is None:
            self._by_partition.setdefault((name.job, name.partition), []).append(name)
            self._by_job.setdefault(name.job, {})[name] = None
        self.by_id[name] = group
        now, before = _workers(group), _workers(known) if known is not None else frozenset()
        if now != before:
            self.copysets.add(now)
            if known is not None:
                self.copysets.remove(before)
            for worker_id in now - before:
                self._by_member.setdefault(worker_id, {})[name] = None
            self._no_member(name, before - now)
        if known is None or known.owner.worker_id != group.owner.worker_id:
            self._not_owned(known)
            self.owned[group.owner.worker_id] += 1
        if len(group.members) <= group.settings.replication_factor:
            self._short[name] = None
        else:
            self._short.pop(name, None)

    def drop(self, group: GroupId) -> None:
        """Removes a group. Raises KeyError if there is none."""
        gone = self.by_id.pop(group)
        self.copysets.remove(_workers(gone))
        partition = group.job, group.partition
        self._by_partition[partition].remove(group)
        if not self._by_partition[partition]:
            del self._by_partition[partition]
        del self._by_job[group.job][group]
        if not self._by_job[group.job]:
            del self._by_job[group.job]
        self._no_member(group, _workers(gone))
        self._not_owned(gone)
        self._short.pop(group, None)

    def _no_member(self, group: GroupId, workers: Iterable[str]) -> None:
        for worker_id in workers:
            del self._by_member[worker_id][group]
            if not self._by_member[worker_id]:
                del self._by_member[worker_id]

    def _not_owned(self, known: ReplicaGroup | None) -> None:
        if known is None:
            return
        self.owned[known.owner.worker_id] -= 1
        if not self.owned[known.owner.worker_id]:
            del self.owned[known.owner.worker_id]

    def related(self, group: GroupId) -> list[ReplicaGroup]:
        """Groups of the same partition of the same job: those of other operators. Spark may run these in one task."""
        return [self.by_id[g] for g in self._by_partition.get((group.job, group.partition), ()) if g != group]

    def of_job(self, job: str) -> Collection[GroupId]:
        """Groups of the job."""
        return self._by_job.get(job, {}).keys()

    def of_worker(self, worker_id: str) -> Collection[GroupId]:
        """Groups of which the worker is a member."""
        return self._by_member.get(worker_id, {}).keys()

    def short(self) -> Collection[GroupId]:
        """Groups with fewer members than their settings ask for."""
        return self._short.keys()

    def fewest_whole_first(self, groups: Iterable[GroupId] | None = None) -> list[ReplicaGroup]:
        """These groups, or all, those with the fewest whole members first: they need another copy most."""
        found = self.by_id.values() if groups is None else [self.by_id[group] for group in sorted(groups)]
        return sorted(found, key=lambda g: sum(m.whole for m in g.members))


def _workers(group: ReplicaGroup) -> frozenset[str]:
    return frozenset(member.worker.worker_id for member in group.members)
