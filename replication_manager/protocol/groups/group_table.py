"""All replica groups of the manager, by id, by partition, by job and by member, and the bytes of each member."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable

from rhino_core.ids import GroupId, ReplicaGroup
from rhino_core.planning.copysets import Copysets

Ids = dict[GroupId, None]  # a set with an order: that of time
GROUP_BYTES_MIN = 1 << 20  # an empty group counts this much, so that new groups spread


class GroupTable:
    """`by_id` is for reading. Only `put` and `drop` change it. `copysets`: the sets of workers with copies of the same
    group.

    There may be 100 000 groups. An event of a worker or a job concerns few of them, so each of these has an index.
    `owned` counts the groups of each owner. `load_bytes` has the bytes of the groups of each member.
    """

    def __init__(self, groups: Iterable[ReplicaGroup]) -> None:
        self.by_id: dict[GroupId, ReplicaGroup] = {}
        self.owned = Counter[str]()
        self.load_bytes = Counter[str]()
        self._large: dict[GroupId, int] = {}  # bytes of groups with more than GROUP_BYTES_MIN
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
            weight = self._large.get(name, GROUP_BYTES_MIN)
            for worker_id in now - before:
                self._by_member.setdefault(worker_id, {})[name] = None
                self.load_bytes[worker_id] += weight
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

    def resize(self, group: GroupId, size_bytes: int) -> None:
        """The group has this size from now on, whether it exists or not."""
        before, now = self._large.get(group, GROUP_BYTES_MIN), max(size_bytes, GROUP_BYTES_MIN)
        if now > GROUP_BYTES_MIN:
            self._large[group] = now
        else:
            self._large.pop(group, None)
        known = self.by_id.get(group) if now != before else None
        for member in known.members if known is not None else ():
            self.load_bytes[member.worker.worker_id] += now - before

    def _no_member(self, group: GroupId, workers: Iterable[str]) -> None:
        weight = self._large.get(group, GROUP_BYTES_MIN)
        for worker_id in workers:
            self.load_bytes[worker_id] -= weight
            del self._by_member[worker_id][group]
            if not self._by_member[worker_id]:
                del self._by_member[worker_id]
                del self.load_bytes[worker_id]

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
        """Groups with the worker as a member."""
        return self._by_member.get(worker_id, {}).keys()

    def groups_of(self, worker_id: str) -> Iterable[ReplicaGroup]:
        """Groups with the worker as a member."""
        return map(self.by_id.__getitem__, self.of_worker(worker_id))

    def members(self) -> Collection[str]:
        """Ids of the members of all groups. A live view."""
        return self._by_member.keys()

    def short(self) -> Collection[GroupId]:
        """Groups with fewer members than their settings ask for."""
        return self._short.keys()

    def fewest_whole_first(self, groups: Iterable[GroupId]) -> list[ReplicaGroup]:
        """These groups, those with the fewest whole members first: they need another copy most."""
        found = [self.by_id[group] for group in sorted(groups)]
        return sorted(found, key=lambda g: sum(m.whole for m in g.members))


def _workers(group: ReplicaGroup) -> frozenset[str]:
    return frozenset(member.worker.worker_id for member in group.members)
