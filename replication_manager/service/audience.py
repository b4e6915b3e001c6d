"""All WatchGroups streams, and those concerned by a change."""

from __future__ import annotations

from collections.abc import Iterable

from replication_manager.protocol.machine import ReplicationMachine
from replication_manager.service.watchers import News, Watcher
from rhino_core.ids import Epoch, GroupId, ReplicaGroup, StoreVersion


class Audience:
    """The streams by worker: a worker has one at most.

    There may be 1000 streams and 100 000 groups, so a change is shown only to the streams of present and former
    members, and of workers that have reported or resolved the group. `interested`: the groups resolved by each worker.
    """

    def __init__(self, core: ReplicationMachine) -> None:
        self._core = core
        self._watchers: dict[str, Watcher] = {}
        self.interested: dict[str, set[GroupId]] = {}
        self._resolved_by: dict[GroupId, set[str]] = {}
        self._published = dict(core.groups)  # what the streams have been shown, or have in their first message
        self._news = News(core)

    def open(self, worker_id: str) -> Watcher:
        """A new stream of this worker. A former one ends: its break was not noticed yet."""
        if (former := self._watchers.get(worker_id)) is not None:
            former.end()
        interested = self.interested.setdefault(worker_id, set())
        watcher = Watcher(self._core, worker_id, interested, self._news)
        self._watchers[worker_id] = watcher
        self._news.streams(len(self._watchers))
        return watcher

    def close(self, watcher: Watcher) -> None:
        """The stream has ended."""
        if self._watchers.get(watcher.worker_id) is watcher:
            del self._watchers[watcher.worker_id]
            self._news.streams(len(self._watchers))

    def resolved(self, worker_id: str, group: GroupId) -> None:
        """The worker has resolved the group, perhaps without being a member."""
        self.interested.setdefault(worker_id, set()).add(group)
        self._resolved_by.setdefault(group, set()).add(worker_id)

    def reported(self, worker_id: str, groups: Iterable[GroupId]) -> None:
        """The worker has reported its files of these groups."""
        if (watcher := self._watchers.get(worker_id)) is not None:
            watcher.reported(worker_id, groups)

    def group_changed(self, group: ReplicaGroup) -> None:
        former = self._published.get(group.group)
        self._published[group.group] = group
        for watcher in self._near(group.group, former, group):
            watcher.group_changed(group)

    def groups_gone(self, groups: Iterable[GroupId]) -> None:
        for group in groups:
            for watcher in self._near(group, self._published.pop(group, None)):
                watcher.groups_gone((group,))
            for worker_id in self._resolved_by.pop(group, ()):
                self.interested[worker_id].discard(group)

    def floors_raised(self, floors: Iterable[StoreVersion]) -> None:
        raised: dict[str, list[StoreVersion]] = {}
        near: dict[GroupId, list[Watcher]] = {}
        for floor in floors:
            group = floor.store.group
            watchers = near.get(group)
            if watchers is None:
                watchers = near[group] = self._near(group, self._core.groups.get(group))
            for watcher in watchers:
                raised.setdefault(watcher.worker_id, []).append(floor)
        for worker_id, mine in raised.items():
            self._watchers[worker_id].floors_raised(mine)

    def workers_changed(self) -> None:
        for watcher in self._watchers.values():
            watcher.workers_changed()

    def job_forgotten(self, job: str, fence: Epoch) -> None:
        for watcher in self._watchers.values():
            watcher.job_forgotten(job, fence)

    def worker_forgotten(self, worker_id: str) -> None:
        for group in self.interested.pop(worker_id, ()):
            resolved_by = self._resolved_by[group]
            resolved_by.discard(worker_id)
            if not resolved_by:
                del self._resolved_by[group]

    def _near(self, group: GroupId, *known: ReplicaGroup | None) -> list[Watcher]:
        """The streams that a change of this group may concern, in a deterministic order."""
        ids: dict[str, None] = {}
        for one in known:
            ids |= dict.fromkeys(member.worker.worker_id for member in one.members) if one is not None else {}
        ids |= dict.fromkeys(self._core.membership.reporting.of(group))
        ids |= dict.fromkeys(sorted(self._resolved_by.get(group, ())))
        return [self._watchers[worker_id] for worker_id in ids if worker_id in self._watchers]
