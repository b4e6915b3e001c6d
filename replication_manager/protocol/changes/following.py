"""Ownership follows logged batches: the steady writer becomes the owner. A guest joins first."""

from __future__ import annotations

from collections.abc import Collection

from replication_manager.protocol import events as ev
from replication_manager.protocol.changes.chains import Chains
from replication_manager.protocol.groups import logged
from replication_manager.protocol.groups.logged import LoggedVersions, check_published
from replication_manager.protocol.groups.returned import Returned
from replication_manager.protocol.workers.membership import Membership
from rhino_core.ids import GroupId, ReplicaGroup, StoreId


class Following:
    """Changes groups (`Chains`) according to their writers (`LoggedVersions`).

    Not journalled. After a restart a joined guest is an ordinary member, and becomes the owner as such.
    """

    def __init__(
        self, logged_versions: LoggedVersions, chains: Chains, membership: Membership, returned: Returned
    ) -> None:
        self._logged = logged_versions
        self._chains = chains
        self._membership = membership
        self._returned = returned
        self._guests: dict[GroupId, str] = {}  # guests that have joined, by group

    def published(self, event: ev.BatchPublished) -> list[ev.Effect]:
        """Records a batch of Spark's commit log, and lets the owners follow its writers."""
        check_published(event)
        raised = self._logged.raise_floors(event.floors)
        for version in event.logged:
            self._logged.add(version)
        effects: list[ev.Effect] = [ev.PersistFloor(floor) for floor in raised]
        if raised:
            effects.append(ev.PublishFloors(raised))
        for group in sorted({version.store.group for version in event.logged}):
            effects += self.follow(group)
        return effects

    def follow(self, group_id: GroupId) -> list[ev.Effect]:
        """Counts the newest logged batch of the group once, and acts on it once.

        Call it when a batch may have been logged, or when its writer may have become known.
        """
        group = self._chains.groups.get(group_id)
        owner = group.owner.worker_id if group is not None else ""
        counted = self._logged.count(group_id, self._membership.with_report(group_id), owner)
        writer, length = self._logged.streak(group_id)
        if not counted or group is None or writer == group.owner.worker_id or length < logged.OWNER_STREAK:
            return []
        if group.member(writer) is not None:
            return self._make_owner(group, writer)
        return self._join(group, writer) if length >= logged.GUEST_STREAK else []

    def whole(self, group_id: GroupId, worker_id: str) -> list[ev.Effect]:
        """A member now counts as whole. A guest becomes the owner at once if it still writes.

        Otherwise the guest would be superfluous and would be removed.
        """
        group, (writer, length) = self._chains.groups.get(group_id), self._logged.streak(group_id)
        if group is None or self._guests.get(group_id) != worker_id:
            return []
        del self._guests[group_id]
        still = writer == worker_id and length >= logged.OWNER_STREAK
        return self._make_owner(group, worker_id) if still else []

    def forget(self, groups: Collection[GroupId]) -> tuple[StoreId, ...]:
        """Forgets the logs of these groups. Returns the stores with forgotten floors."""
        for group_id in groups:
            self._guests.pop(group_id, None)
        return self._logged.forget(groups)

    def _make_owner(self, group: ReplicaGroup, writer: str) -> list[ev.Effect]:
        """Makes a whole member the owner, unless it is draining.

        If a guest has joined, the last of the chain leaves, unless it is the target of a handover. The handover cuts
        the chain when it ends. Once the target is the owner, it needs nothing more from its handover.
        """
        member = group.member(writer)
        if member is None or writer == group.owner.worker_id:
            return []
        if not member.whole or writer in self._membership.draining or not self._membership.is_present(member.worker):
            return []
        members = self._chains.owned_by(group, writer)
        if writer in self._returned.targets(group.group):
            self._returned.owner_set(group.group)
        kept, targets = {m.worker.worker_id for m in members}, self._returned.targets(group.group)
        cut = (m for m in group.members if m.worker.worker_id in targets and m.worker.worker_id not in kept)
        return self._chains.renew(group, (*members, *cut))

    def _join(self, group: ReplicaGroup, writer: str) -> list[ev.Effect]:
        """Adds a guest to the group. If it stops writing before it is whole, it leaves again like a returned worker."""
        worker = self._membership.records[writer].worker
        if not self._membership.is_live(worker):
            return []
        effects = self._chains.join(group, worker)
        if effects:
            self._guests[group.group] = writer
            self._returned.joined_to_write(group.group, writer)
        return effects
