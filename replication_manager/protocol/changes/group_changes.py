"""Requests of sidecars for groups, and requests of the handover manager for changes."""

from __future__ import annotations

from dataclasses import replace

from replication_manager.protocol import events as ev
from replication_manager.protocol.changes.chains import Chains
from replication_manager.protocol.groups.logged import LoggedVersions
from replication_manager.protocol.groups.returned import Returned
from replication_manager.protocol.workers.bootstrap import Bootstrap
from replication_manager.protocol.workers.membership import Membership
from rhino_core.errors import PreconditionError, UnavailableError, UnknownError
from rhino_core.ids import DiskState, Member, Worker


class GroupChanges:
    """Checks the request, then changes the group."""

    def __init__(
        self,
        membership: Membership,
        chains: Chains,
        bootstrap: Bootstrap,
        returned: Returned,
        logged: LoggedVersions,
    ) -> None:
        self._membership = membership
        self._chains = chains
        self._bootstrap = bootstrap
        self._returned = returned
        self._logged = logged

    def resolve(self, event: ev.Resolve) -> list[ev.Effect]:
        """Creates the group if there is none. The worker asks because a task there reads or writes it."""
        if event.group in self._chains.groups:
            self._membership.may_store(event.worker_id, event.group)
            return []
        if event.group.job in self._chains.fences:
            raise PreconditionError(
                f"job {event.group.job} was forgotten and its state deleted: start the query with a new checkpoint"
            )
        record = self._membership.records.get(event.worker_id)
        if record is None or not record.present:
            raise UnavailableError(f"worker {event.worker_id!r} is not registered with this manager")
        if awaited := self._bootstrap.awaited(self._membership.records.values()):
            raise UnavailableError(
                f"group {event.group}: this manager began with an empty journal, and workers that may hold the group "
                f"have not registered yet: {', '.join(awaited)}"
            )
        effects = self._chains.start(event.group, record.worker, event.settings, event.branch_of)
        self._membership.may_store(event.worker_id, event.group)
        self._returned.group_created(event.group)
        return effects

    def change(self, event: ev.Change) -> list[ev.Effect]:
        """Adds a member, names the owner, or does both under one epoch."""
        group = self._chains.groups.get(event.group)
        if group is None:
            raise UnknownError(f"group {event.group} is not known")
        members, joins = group.members, bool(event.add_member) and group.member(event.add_member) is None
        if joins:
            members = (*members, Member(self._eligible(event.add_member), False))
        # A handover that was given up has left a member. Naming the same owner again cuts the chain.
        named = event.make_owner and (self._chains.too_long(group) or event.make_owner != group.owner.worker_id)
        if named:
            members = self._chains.owned_by(replace(group, members=members), event.make_owner)
        # nothing is refused from here on
        if joins:
            self._returned.added(event.group, event.add_member)
        if event.make_owner:
            self._returned.owner_set(event.group)
        if named:
            self._logged.restart(event.group)
        return self._chains.renew(group, members) if members != group.members else []

    def _eligible(self, worker_id: str) -> Worker:
        """The worker, if it can join a group. Raises UnknownError, UnavailableError and PreconditionError."""
        record = self._membership.records.get(worker_id)
        if record is None:
            raise UnknownError(f"worker {worker_id!r} is not known")
        if not record.present:
            raise UnavailableError(f"worker {worker_id!r} is not live")
        if worker_id in self._membership.draining:
            raise PreconditionError(f"worker {worker_id!r} is being drained: choose another")
        if record.disk is not DiskState.OK:
            raise PreconditionError(
                f"worker {worker_id!r} takes no files: disk {record.disk.value}, {record.disk_message}"
            )
        return record.worker
