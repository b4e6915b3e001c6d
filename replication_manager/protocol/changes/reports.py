"""How groups follow the reports of their workers: members become whole, and sources join and leave."""

from __future__ import annotations

from replication_manager.protocol import events as ev
from replication_manager.protocol.changes.chains import Chains
from replication_manager.protocol.changes.following import Following
from replication_manager.protocol.changes.resettling import Resettling
from replication_manager.protocol.groups import rules
from replication_manager.protocol.groups.logged import LoggedVersions
from replication_manager.protocol.groups.returned import Returned
from replication_manager.protocol.placement.impaired import Impaired
from replication_manager.protocol.workers.membership import Membership
from replication_manager.protocol.workers.worker_record import Report
from rhino_core.ids import GroupId, Member, Worker


class Reports:
    """Acts on reports. `Membership` has recorded them before."""

    def __init__(
        self,
        membership: Membership,
        chains: Chains,
        impaired: Impaired,
        returned: Returned,
        logged: LoggedVersions,
        following: Following,
        resettling: Resettling,
    ) -> None:
        self._membership = membership
        self._chains = chains
        self._impaired = impaired
        self._returned = returned
        self._logged = logged
        self._following = following
        self._resettling = resettling

    def take(self, worker: Worker, report: Report) -> list[ev.Effect]:
        """Acts on one report. It may make a member whole, or name the writer of a logged batch."""
        return [
            *self._count_as_whole(worker, report),
            *self._part_from_sources(report.group),
            *self._resettling.shorten(report.group),
            *self._following.follow(report.group),
        ]

    def _count_as_whole(self, worker: Worker, report: Report) -> list[ev.Effect]:
        """Counts a member as whole once it reports so under the present epoch."""
        group = self._chains.groups.get(report.group)
        member = group.member(worker.worker_id) if group else None
        if group is None or member is None or member.whole or not report.whole or report.epoch != group.epoch:
            return []
        if self._impaired.may_have_missed(group, worker.worker_id):
            return []
        whole = tuple(Member(m.worker, True) if m is member else m for m in group.members)
        self._membership.records[worker.worker_id].suspected.discard(group.group)
        effects = self._chains.repair(group, whole)
        return [*effects, *self._following.whole(report.group, worker.worker_id)]

    def join_sources(self, worker_id: str) -> list[ev.Effect]:
        """Re-admits returned workers if they hold versions that no whole member holds. The others catch up from them.

        Looks only at the groups affected by this worker's report.
        """
        effects: list[ev.Effect] = []
        for group_id in self._returned.groups(worker_id, self._chains.member_of):
            group = self._chains.groups.get(group_id)
            if group is None:
                continue
            joining = self._returned.sources(group, self._membership, self._logged)
            if joining:
                effects += self._chains.repair(group, (*group.members, *rules.held_by(joining, ())))
        return effects

    def _part_from_sources(self, group_id: GroupId) -> list[ev.Effect]:
        """Removes superfluous sources."""
        group = self._chains.groups.get(group_id)
        leaving = self._returned.take_superfluous(group, self._membership) if group else ()
        if group is None or not leaving:
            return []
        return self._chains.renew(group, tuple(m for m in group.members if m.worker.worker_id not in leaving))
