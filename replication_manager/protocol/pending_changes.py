"""Changes of groups not yet sent to one watching worker. Several changes of one group are sent as one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from replication_manager.protocol.machine import ReplicationMachine
from rhino_core.ids import Epoch, GroupId, ReplicaGroup, StoreVersion


@dataclass(frozen=True, slots=True)
class Update:
    """One message to a watching worker.

    If `snapshot` is true, `groups` are all groups that concern the worker, else the changed ones. `left`: groups that
    no longer concern it. The message has the present and the absent workers besides.
    """

    snapshot: bool
    groups: tuple[ReplicaGroup, ...]
    left: tuple[GroupId, ...]
    floors: tuple[StoreVersion, ...]
    forgotten: Mapping[str, Epoch] = field(default_factory=dict)

    @property
    def empty(self) -> bool:
        """Whether it says nothing beside the workers."""
        return not (self.snapshot or self.groups or self.left or self.floors or self.forgotten)


class PendingChanges:
    """Pending changes for one worker.

    They cover its groups as a member, those in `interested` (resolved without being a member), and those with files on
    it. A worker outside a group needs the members to ask whether it may delete its files. The notifying methods return
    whether a message is due. Call `snapshot` first, then `take` whenever a message is due.
    """

    def __init__(self, core: ReplicationMachine, worker_id: str, interested: set[GroupId]) -> None:
        self._core = core
        self.worker_id = worker_id
        self._interested = interested
        self._sent: set[GroupId] = set()
        self._groups: set[GroupId] = set()
        self._floors: dict[object, StoreVersion] = {}
        self._forgotten: dict[str, Epoch] = {}

    def concerns(self, group: ReplicaGroup) -> bool:
        return group.group in self._interested or group.member(self.worker_id) is not None or self._stores(group.group)

    def _stores(self, group: GroupId) -> bool:
        record = self._core.membership.records.get(self.worker_id)
        report = record.reports.get(group) if record is not None else None
        return report is not None and report.stored_files > 0

    def reported(self, worker_id: str, groups: Iterable[GroupId]) -> bool:
        """A worker has reported its files of these groups."""
        if worker_id != self.worker_id:
            return False
        new = (group for group in groups if group not in self._sent and group in self._core.groups)
        unsent = {group for group in new if self._stores(group)}
        self._groups |= unsent
        return bool(unsent)

    def group_changed(self, group: ReplicaGroup) -> bool:
        mine = self.concerns(group) or group.group in self._sent
        if mine:
            self._groups.add(group.group)
        return mine

    def groups_gone(self, groups: Iterable[GroupId]) -> bool:
        mine = [group for group in groups if group in self._sent or group in self._interested]
        self._groups.update(mine)
        return bool(mine)

    def job_forgotten(self, job: str, fence: Epoch) -> bool:
        self._forgotten[job] = fence
        return True

    def floors_raised(self, floors: Iterable[StoreVersion]) -> bool:
        mine = [f for f in floors if f.store.group in self._sent or f.store.group in self._interested]
        self._floors.update({floor.store: floor for floor in mine})
        return bool(mine)

    def snapshot(self) -> Update:
        core = self._core
        record = core.membership.records.get(self.worker_id)
        reported = record.reports if record is not None else {}
        near = {*core.member_of(self.worker_id), *self._interested, *reported}
        found = [core.groups[group] for group in sorted(near) if group in core.groups]
        groups = tuple(group for group in found if self.concerns(group))
        self._sent = {group.group for group in groups}
        floors = tuple(floor for group in groups for floor in core.floors_of(group.group))
        return Update(True, groups, (), floors, dict(core.forgotten))

    def take(self) -> Update:
        """Returns all changes since the last message."""
        changed = [self._core.groups[group] for group in sorted(self._groups) if group in self._core.groups]
        mine = tuple(group for group in changed if self.concerns(group))
        joined = {group.group for group in mine} - self._sent
        for floor in (floor for group in sorted(joined) for floor in self._core.floors_of(group)):
            self._floors[floor.store] = floor
        floors = tuple(self._floors.values())
        left = [group.group for group in changed if not self.concerns(group)]
        left += sorted(group for group in self._groups if group not in self._core.groups)
        forgotten = self._forgotten
        self._groups, self._floors, self._forgotten = set(), {}, {}
        self._sent = (self._sent | {group.group for group in mine}) - set(left)
        return Update(False, mine, tuple(left), floors, forgotten)
