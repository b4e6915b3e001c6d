"""The cluster as the handover manager sees it: one snapshot of workers and replica groups."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from rhino_core.ids import DiskState, GroupId, ReplicaGroup, Worker

Standing = frozenset[tuple[str, str, bool, bool]]  # of each worker: id, host, whether it is reachable, and draining


class TaskGroup(NamedTuple):
    """All stateful operators of one task, named by the lowest operator id."""

    task_group: int
    operators: tuple[int, ...]
    partitions: int


@dataclass(frozen=True, slots=True)
class WorkerSeen:
    """`reachable`: its lease runs (live or suspect). `live`: its heartbeats arrive. `draining`: it is being emptied."""

    worker: Worker
    reachable: bool
    live: bool
    free_bytes: int
    disk: DiskState = DiskState.OK
    disk_message: str = ""
    draining: bool = False

    @property
    def eligible(self) -> bool:
        """Whether it may receive virtual nodes."""
        return self.live and self.disk is DiskState.OK and not self.draining


@dataclass(frozen=True, slots=True)
class GroupSeen:
    """A replica group, and the bytes that each worker stores of it, whether or not it is a member.

    After a change of any of these the next view has another object.
    """

    group: ReplicaGroup
    stored_bytes: Mapping[str, int]

    @property
    def owner(self) -> str:
        return self.group.owner.worker_id

    def has(self, worker_id: str) -> bool:
        """Whether the worker is a member."""
        return self.group.member(worker_id) is not None

    def is_whole(self, worker_id: str) -> bool:
        member = self.group.member(worker_id)
        return member is not None and member.whole


@dataclass(frozen=True, slots=True)
class Remains:
    """Groups whose state may be on one worker only, apart from its copies.

    `unsettled`: it may have versions that no whole member has. `ungrouped`: it stores files of a group that does not
    exist: the journal was lost, and no query has asked for the group since.
    """

    unsettled: Collection[GroupId] = ()
    ungrouped: Collection[GroupId] = ()


@dataclass(frozen=True, slots=True)
class ClusterView:
    """One snapshot of the cluster.

    `presumed`: workers that count as reachable, because they may not have registered with a new manager yet.
    `asked_at`: monotonic time of the snapshot. It may lack a group change that was answered later. `revisions`: for
    each job a number that rises whenever one of its groups changes, apart from stored bytes. It is 0 for a job without
    groups. None: unknown. `members`: ids of all workers that are a member of some group. None: to be found in `groups`.
    """

    workers: Mapping[str, WorkerSeen] = field(default_factory=dict)
    groups: Mapping[GroupId, GroupSeen] = field(default_factory=dict)
    presumed: frozenset[str] = frozenset()
    asked_at: float = math.inf
    revisions: Mapping[str, int] | None = None
    members: Collection[str] | None = None

    def all_members(self) -> Collection[str]:
        """Ids of the members of all groups."""
        if self.members is not None:
            return self.members
        return {m.worker.worker_id for seen in self.groups.values() for m in seen.group.members}

    def standing(self) -> Standing:
        """The properties of workers behind maps of desired workers."""
        workers = {(name, w.worker.host, self.reachable(name), w.draining) for name, w in self.workers.items()}
        return frozenset(workers | {(name, "", True, False) for name in self.presumed if name not in self.workers})

    def reachable(self, worker_id: str) -> bool:
        seen = self.workers.get(worker_id)
        return worker_id in self.presumed or (seen is not None and seen.reachable)

    def draining(self, worker_id: str) -> bool:
        seen = self.workers.get(worker_id)
        return seen is not None and seen.draining

    def being_drained(self) -> list[str]:
        """Draining workers with copies. An empty or vanished one may stay marked for ever."""
        draining = [name for name in self.workers if self.draining(name) and self.reachable(name)]
        members = self.all_members() if draining else ()
        return sorted(name for name in draining if name in members)

    def known(self, groups: Iterable[GroupId]) -> list[GroupSeen]:
        """The existing ones of `groups`."""
        return [self.groups[g] for g in groups if g in self.groups]

    def is_longer(self, seen: GroupSeen) -> bool:
        """Whether the group has more members than the job asks for, draining ones aside.

        This is so, for example, while a handover prepares.
        """
        staying = [m for m in seen.group.members if not self.draining(m.worker.worker_id)]
        return len(staying) > seen.group.settings.replication_factor + 1

    def holders(self, groups: Iterable[GroupId]) -> list[str]:
        """Reachable whole members of every existing one of `groups`, in chain order."""
        seen = self.known(groups)
        if not seen:
            return []
        chain = [m.worker.worker_id for m in seen[0].group.members]
        return [w for w in chain if self.reachable(w) and all(g.is_whole(w) for g in seen)]
