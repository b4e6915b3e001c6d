"""What the handover manager sees of the cluster: one snapshot of workers and replica groups."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from rhino.ids import DiskState, GroupId, ReplicaGroup, VirtualNode, Worker


class TaskGroup(NamedTuple):
    """All stateful operators of one stage; named by the lowest operator id."""

    task_group: int
    operators: tuple[int, ...]
    partitions: int


@dataclass(frozen=True, slots=True)
class WorkerSeen:
    """`reachable`: its lease runs (live or suspect). `live`: its heartbeats arrive. `draining`: it is to be emptied."""

    worker: Worker
    reachable: bool
    live: bool
    free_bytes: int
    disk: DiskState = DiskState.OK
    disk_message: str = ""
    draining: bool = False

    @property
    def eligible(self) -> bool:
        """May take virtual nodes."""
        return self.live and self.disk is DiskState.OK and not self.draining


@dataclass(frozen=True, slots=True)
class GroupSeen:
    """A replica group and the bytes that each worker stores of it, members or not."""

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
class ClusterView:
    """`presumed`: workers taken for reachable, since they may not have introduced themselves to a new manager yet.
    `asked_at`: monotonic; a group change that was answered later may not be in it."""

    workers: Mapping[str, WorkerSeen] = field(default_factory=dict)
    groups: Mapping[GroupId, GroupSeen] = field(default_factory=dict)
    presumed: frozenset[str] = frozenset()
    asked_at: float = math.inf

    def reachable(self, worker_id: str) -> bool:
        seen = self.workers.get(worker_id)
        return worker_id in self.presumed or (seen is not None and seen.reachable)

    def draining(self, worker_id: str) -> bool:
        seen = self.workers.get(worker_id)
        return seen is not None and seen.draining

    def known(self, groups: Iterable[GroupId]) -> list[GroupSeen]:
        """Those of `groups` that exist."""
        return [self.groups[g] for g in groups if g in self.groups]

    def is_longer(self, seen: GroupSeen) -> bool:
        """More members than the job asks for, draining ones aside, as while a handover prepares."""
        staying = [m for m in seen.group.members if not self.draining(m.worker.worker_id)]
        return len(staying) > seen.group.settings.replication_factor + 1

    def holders(self, groups: Iterable[GroupId]) -> list[str]:
        """Reachable workers that are whole members of every existing one of `groups`, in chain order."""
        seen = self.known(groups)
        if not seen:
            return []
        chain = [m.worker.worker_id for m in seen[0].group.members]
        return [w for w in chain if self.reachable(w) and all(g.is_whole(w) for g in seen)]


def groups_of(node: VirtualNode, operators: Iterable[int]) -> tuple[GroupId, ...]:
    """The replica groups of a virtual node: one for each operator of its task group."""
    return tuple(GroupId(node.job, operator, node.partition) for operator in operators)
