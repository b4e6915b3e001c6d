"""Workers that return outside a group, and hold versions that its members lack.

A degraded commit has one copy. If the worker with that copy is lost and replaced before another member caught up, the
version remains on its disk only. At its return the worker joins as a source. It leaves when all are whole. A guest that
joined (protocol/changes/following.py) leaves in the same way once it no longer writes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterable, Mapping
from dataclasses import dataclass

from replication_manager.protocol.groups.logged import LoggedVersions
from replication_manager.protocol.workers.membership import Membership
from replication_manager.protocol.workers.worker_record import Report, WorkerRecord
from rhino_core.ids import GroupId, ReplicaGroup, StoreVersion, Version, Worker


@dataclass(frozen=True, slots=True)
class Return:
    """The versions held by a worker at its registration, at monotonic time `since`."""

    worker: Worker
    held: tuple[StoreVersion, ...]
    since: float


class Returned:
    """Returned workers, waiting for a decision or joined.

    Not journalled: after a restart of the manager every worker registers again. Many reports may be about unused
    groups, such as those of queries stopped before the loss of the journal. These wait for the creation of their group,
    and cost a heartbeat nothing.
    """

    def __init__(self) -> None:
        self._waiting: dict[GroupId, dict[str, Return]] = {}
        self._of_worker: dict[str, set[GroupId]] = {}  # for which a worker waits
        self._due: set[GroupId] = set()  # waiting groups that exist
        self._sources: dict[GroupId, set[str]] = {}
        self._targets: dict[GroupId, set[str]] = {}  # members added for a handover that has not ended
        self._named: Mapping[GroupId, str] = {}  # targets of handovers, also those that were members before

    def registered(self, worker: Worker, reports: Iterable[Report], groups: Container[GroupId], now: float) -> None:
        """The worker has registered. `groups` are the existing ones."""
        for report in reports:
            if report.newest_held:
                self._waiting.setdefault(report.group, {})[worker.worker_id] = Return(worker, report.newest_held, now)
                self._of_worker.setdefault(worker.worker_id, set()).add(report.group)
                if report.group in groups:
                    self._due.add(report.group)

    def group_created(self, group: GroupId) -> None:
        """The group has been created."""
        if group in self._waiting:
            self._due.add(group)

    def forget_job(self, job: str) -> None:
        for group in [group for group in self._waiting if group.job == job]:
            for worker_id in list(self._waiting[group]):
                self._heard(group, worker_id)
        for table in (self._waiting, self._sources, self._targets):
            for group in [group for group in table if group.job == job]:
                del table[group]
        self._due = {group for group in self._due if group.job != job}

    def forget_worker(self, worker_id: str) -> None:
        for group in list(self._of_worker.get(worker_id, ())):
            self._heard(group, worker_id)
            if not self._waiting[group]:
                self._decided(group)

    def _heard(self, group: GroupId, worker_id: str) -> None:
        """The worker no longer waits for a decision about this group."""
        del self._waiting[group][worker_id]
        mine = self._of_worker[worker_id]
        mine.discard(group)
        if not mine:
            del self._of_worker[worker_id]

    def _decided(self, group: GroupId) -> None:
        del self._waiting[group]
        self._due.discard(group)

    def groups(self, worker_id: str, member_of: Callable[[str], Collection[GroupId]]) -> list[GroupId]:
        """Groups with a due decision and with news, now that this worker was heard.

        It is a member, or it waits itself: it does not wait for ever if the last unheard member is lost.
        """
        if not self._due:
            return []
        mine = self._due.intersection(member_of(worker_id))
        mine.update(group for group in self._of_worker.get(worker_id, ()) if group in self._due)
        return sorted(mine)

    def sources(
        self,
        group: ReplicaGroup,
        membership: Membership,
        logged: LoggedVersions,
    ) -> list[Worker]:
        """Workers to join now: they held a version at or above the floor that no whole member holds.

        A decision needs a heartbeat or registration of every present whole member after the return. Before, the
        member's report may only be late.
        """
        records, present, floors = membership.records, membership.is_present, logged.floors
        newest = logged.newest_by_store(group.group)
        whole = [records[m.worker.worker_id] for m in group.members if m.whole and present(m.worker)]
        held = [v for record in whole if (r := record.reports.get(group.group)) for v in r.newest_held]
        found: list[Worker] = []
        waiting = self._waiting[group.group]
        for worker_id, back in sorted(waiting.items()):
            outside = group.member(worker_id) is None and present(back.worker)
            if outside and any(record.heard_at <= back.since for record in whole):
                continue
            self._heard(group.group, worker_id)
            wanted = (v for v in back.held if v.store not in floors or v.version.version >= floors[v.store].version)
            if outside and any(not covered(version, held, newest.get(version.store)) for version in wanted):
                found.append(back.worker)
                self._sources.setdefault(group.group, set()).add(worker_id)
        if not waiting:
            self._decided(group.group)
        return found

    def joined_to_write(self, group: GroupId, worker_id: str) -> None:
        """A guest has joined the group because it writes. It may leave like a source."""
        self._sources.setdefault(group, set()).add(worker_id)

    def joined(self, group: GroupId) -> frozenset[str]:
        """Joined workers that may leave the group again. A restarted manager does not know them."""
        return frozenset(self._sources.get(group, ()))

    def unsettled(self, worker_id: str) -> set[GroupId]:
        """Groups that the worker has joined, and those for which it still waits for a decision."""
        joined = {group for group, sources in self._sources.items() if worker_id in sources}
        return joined.union(self._of_worker.get(worker_id, ()))

    def added(self, group: GroupId, worker_id: str) -> None:
        """A handover has added the worker. It is the last one to leave."""
        self._targets.setdefault(group, set()).add(worker_id)

    def name_targets(self, targets: Mapping[GroupId, str]) -> None:
        """These are the targets of all handovers in progress."""
        self._named = targets

    def targets(self, group: GroupId) -> Collection[str]:
        """Members added by a handover in progress. A restarted manager does not know them."""
        return self._targets.get(group, ())

    def owner_set(self, group: GroupId) -> None:
        """The handover has named the owner, so it needs no other member."""
        self._targets.pop(group, None)

    def take_superfluous(self, group: ReplicaGroup, membership: Membership) -> set[str]:
        """Members beyond the chain's length, once every member is whole under the present epoch.

        Sources leave first. If a source became the owner, the last of the chain leaves, but for targets of handovers:
        such a target may have replaced a lost member. No more leave than have joined, because another member may be
        there for a handover. Draining workers do not count: their copies need another place.
        """
        records, draining = membership.records, membership.draining
        joined = self._sources.get(group.group, set())
        if not joined or not all(_whole_now(group, records.get(m.worker.worker_id)) for m in group.members):
            return set()
        staying = [m for m in group.members if m.worker.worker_id not in draining]
        drained = {m.worker.worker_id for m in group.members[1:] if m not in staying} & joined
        if drained and sum(m.whole for m in staying) <= group.settings.replication_factor:
            # a member reports to be whole but does not count, because it is impaired
            return set()
        del self._sources[group.group]
        excess = min(len(staying) - group.settings.replication_factor - 1, len(joined))
        secondaries = [m.worker.worker_id for m in staying if m is not group.members[0]]
        targets = {*self.targets(group.group), self._named.get(group.group)}
        order = sorted(secondaries, key=lambda worker_id: (worker_id not in targets, worker_id in joined))  # stable
        return drained.union(order[-excess:] if excess > 0 else ())


def covered(version: StoreVersion, held: Iterable[StoreVersion], logged: Version | None) -> bool:
    """Whether `held`, the newest versions of some members, has this version or a later one of the store.

    After a rewind higher numbers may belong to the lost branch. The query continues from the version `logged` last. So
    only this version, and the next one, perhaps in progress, are known to follow an earlier one.
    """
    mine = [v.version for v in held if v.store == version.store]
    later = [v for v in mine if v.version > version.version.version]
    if logged is not None and version.version.version <= logged.version:
        later = [v for v in later if v == logged or v.version == logged.version + 1]
    return version.version in mine or bool(later)


def _whole_now(group: ReplicaGroup, record: WorkerRecord | None) -> bool:
    report = record.reports.get(group.group) if record is not None else None
    return report is not None and report.whole and report.epoch == group.epoch
