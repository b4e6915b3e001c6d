"""Which workers may send files of a group: its members, and those that the manager names.

A guest writes a group without being a member, because Spark runs a task wherever there is room. A former member may
still pass on what it took before it left.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from rhino_core.ids import GroupId, ReplicaGroup

FORMER_EPOCHS = 3  # epochs may follow each other faster than files
NOBODY: Collection[str] = frozenset()


class Writers:
    """Worker ids by group. `members`: those of the newest epochs that an earlier process has seen.

    A guest has to be allowed again under each epoch: its executors may have ended.
    """

    def __init__(self, members: Mapping[GroupId, Collection[str]]) -> None:
        self._members = dict(members)
        self._former: dict[GroupId, tuple[Collection[str], ...]] = {}  # under the epochs before, the newest first
        self._guests: dict[GroupId, set[str]] = {}

    def members(self, group: GroupId) -> Collection[str]:
        """The members under the newest epoch. Empty: not known."""
        return self._members.get(group, NOBODY)

    def adopted(self, group: ReplicaGroup) -> None:
        """The group has a newer epoch."""
        before, now = self.members(group.group), frozenset(member.worker.worker_id for member in group.members)
        if before and before != now:
            self._former[group.group] = (before, *self._former.get(group.group, ()))[:FORMER_EPOCHS]
        self._members[group.group] = now
        self._guests.pop(group.group, None)

    def left(self, group: GroupId) -> None:
        """The group no longer concerns this worker, so it does not hear of changes."""
        self._members.pop(group, None)

    def allow(self, group: GroupId, guest: str) -> None:
        """The manager allows a guest, under the newest epoch."""
        self._guests.setdefault(group, set()).add(guest)

    def may_write(self, group: GroupId, worker_id: str) -> bool:
        named = (self.members(group), self._guests.get(group, NOBODY), *self._former.get(group, ()))
        return any(worker_id in workers for workers in named)

    def forget(self, group: GroupId) -> None:
        self._members.pop(group, None)
        self._former.pop(group, None)
        self._guests.pop(group, None)
