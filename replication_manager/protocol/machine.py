"""The core of the replication manager: membership, copies and placement (Rhino 4.2.2, phase 1, and 4.2.3).

It decides membership only. None of its decisions deletes a copy, and sidecars refuse epochs older than they know.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import assert_never

from replication_manager.protocol import events as ev
from replication_manager.protocol.changes.chains import Chains
from replication_manager.protocol.changes.departures import Departures
from replication_manager.protocol.changes.following import Following
from replication_manager.protocol.changes.forgetting import Forgetting
from replication_manager.protocol.changes.group_changes import GroupChanges
from replication_manager.protocol.changes.registration import Registration
from replication_manager.protocol.changes.replacing import Replacements
from replication_manager.protocol.changes.reports import Reports
from replication_manager.protocol.changes.resettling import Resettling
from replication_manager.protocol.groups import rules
from replication_manager.protocol.groups.epochs import Epochs
from replication_manager.protocol.groups.group_table import GroupTable
from replication_manager.protocol.groups.logged import LoggedVersions
from replication_manager.protocol.groups.returned import Returned
from replication_manager.protocol.placement.impaired import Impaired
from replication_manager.protocol.placement.lagging import LagCap, Laggards
from replication_manager.protocol.placement.placing import Placing
from replication_manager.protocol.workers.bootstrap import Bootstrap
from replication_manager.protocol.workers.membership import LeaseTimes, Membership
from rhino_core.ids import Epoch, GroupId, JobSettings, ReplicaGroup, StoreVersion, Worker


@dataclass(frozen=True, slots=True)
class Restored:
    """The content of the journal.

    `generation` is the journal's present one. `forgotten` has the fences of forgotten jobs, and `draining` the ids of
    workers. `fresh`: the journal is in its first lifetime.
    """

    generation: int
    workers: Collection[Worker] = ()
    groups: Collection[ReplicaGroup] = ()
    floors: Collection[StoreVersion] = ()
    forgotten: Mapping[str, Epoch] = field(default_factory=dict)
    draining: Collection[str] = ()
    fresh: bool = False


class ReplicationMachine:
    """Owns the parts of the core, and gives each event to its part.

    `handle` raises a RhinoError for a refused event, such as a Registered or a Change. A refused event has changed
    nothing.
    """

    def __init__(
        self,
        restored: Restored,
        lease_times: LeaseTimes,
        *,
        now: float,
        process_number: int = 0,
        lag_cap: LagCap | None = None,
        scatter_width: int = 4,
    ) -> None:
        """`process_number` is described at `Epochs`, `scatter_width` at `Placing`."""
        # what the manager knows
        self.membership = Membership(lease_times, restored.draining)
        for worker in restored.workers:
            self.membership.restore(worker, now)
        self.logged = LoggedVersions(restored.floors)
        self.returned = Returned()
        bootstrap = Bootstrap(fresh=restored.fresh)
        # how groups change
        self.table = table = GroupTable(restored.groups)
        self.membership.reporting.follow(table.resize)
        self.impaired = Impaired(self.membership, table)
        self.laggards = Laggards(lag_cap or LagCap(), self.membership, table, now)
        self._epochs = Epochs(restored.generation, process_number)
        self._placing = Placing(table, self.membership, self.laggards, self.impaired, scatter_width)
        self._chains = Chains(
            table,
            self._epochs,
            self._placing,
            self.membership,
            self.impaired,
            self.returned,
            restored.forgotten,
        )
        replacements = Replacements(self.laggards, self._chains, self.membership, self.logged)
        self._resettling = Resettling(self._chains)
        self._following = Following(self.logged, self._chains, self.membership, self.returned)
        # what handles events
        reports = Reports(
            self.membership,
            self._chains,
            self.impaired,
            self.returned,
            self.logged,
            self._following,
            self._resettling,
        )
        self._registration = Registration(
            self.membership,
            self._chains,
            self.impaired,
            bootstrap,
            self.returned,
            replacements,
            reports,
        )
        self._departures = Departures(self.membership, self._chains, self.laggards)
        self._group_changes = GroupChanges(self.membership, self._chains, bootstrap, self.returned, self.logged)
        self._forgetting = Forgetting(
            self.membership,
            self._chains,
            self._placing,
            self.impaired,
            bootstrap,
            self.returned,
            self._following,
            self._resettling,
        )

    # ---------------------------------------------------------------- contract

    def handle(self, event: ev.Event, *, now: float) -> list[ev.Effect]:
        self._chains.next_event(now)
        match event:
            case ev.Registered():
                return self._registration.registered(event, now)
            case ev.Beat():
                return self._registration.beat(event, now)
            case ev.StreamBroken():
                return self._departures.stream_broken(event, now)
            case ev.Refused():
                return self._departures.refused(event)
            case ev.Leaving():
                return self._departures.leaving(event, now)
            case ev.Tick():
                return self._departures.expire(now)
            case ev.DrainSet():
                return self._departures.drain(event)
            case ev.Resolve():
                return self._group_changes.resolve(event)
            case ev.Change():
                return self._group_changes.change(event)
            case ev.TargetsNamed(targets):
                self.returned.name_targets(targets)
                return []
            case ev.SettingsNamed():
                return self._resettling.named(event.job, event.settings)
            case ev.ExecutorsNamed():
                if event.job not in self.forgotten:
                    self._placing.name_executors(event)
                return []
            case ev.BatchPublished():
                if event.job in self.forgotten:
                    return []
                return self._following.published(event)
            case ev.JobForgotten():
                return self._forgetting.job(event.job)
            case ev.WorkerForgotten():
                return self._forgetting.worker(event.worker_id)
            case _:
                assert_never(event)

    def next_deadline(self) -> float | None:
        times = (self.membership.next_deadline(), self.laggards.next_deadline(), self._chains.next_deadline())
        return min((at for at in times if at is not None), default=None)

    def check_invariants(self) -> None:
        self._chains.check_invariants()
        for group in self.groups.values():
            ids = [m.worker.worker_id for m in group.members]
            assert ids, f"{group.group} has no members"
            assert len(set(ids)) == len(ids), f"{group.group} has a member twice"
            assert group.required_copies == rules.required_copies(group.settings, group.members)
            assert group.epoch <= self._epochs.newest

    # ---------------------------------------------------------------- for readers

    @property
    def generation(self) -> int:
        return self._epochs.generation

    @property
    def groups(self) -> Mapping[GroupId, ReplicaGroup]:
        return self._chains.groups

    def member_of(self, worker_id: str) -> Collection[GroupId]:
        """Groups with the worker as a member."""
        return self.table.of_worker(worker_id)

    def owned_by(self, worker_id: str) -> int:
        """How many groups the worker owns."""
        return self.table.owned[worker_id]

    def may_use(self, group: GroupId, worker_id: str) -> bool:
        """Whether the worker may send and fetch files of the group.

        It is a member, or executors of the job run there. A job without a logged batch may be a branch in the making,
        without executors.
        """
        known = self.groups.get(group)
        if known is not None and known.member(worker_id) is not None:
            return True
        return self._placing.may_run(group.job, worker_id, unnamed=not self.floors_of(group))

    def may_hold(self, group: GroupId) -> list[str]:
        """Ids of workers that may have files of the group, live or absent.

        These are its members, those that have reported files of it, those that may have stored files after their last
        report, and those that have not registered since this manager started.
        """
        known, records = self.groups.get(group), self.membership.records
        members = {member.worker.worker_id for member in known.members} if known is not None else set()
        unheard = {w for w, record in records.items() if not record.process_id or group in record.unreported}
        reports = ((record, record.reports[group]) for record in self.membership.with_report(group))
        stored = {record.worker.worker_id for record, report in reports if report.stored_files or report.stored_bytes}
        return sorted(members | unheard | stored)

    def of_job(self, job: str) -> Collection[GroupId]:
        """Groups of the job."""
        return self.table.of_job(job)

    def floors_of(self, group: GroupId) -> list[StoreVersion]:
        """The floors of all stores of the group."""
        return self.logged.floors_of(group)

    @property
    def forgotten(self) -> Mapping[str, Epoch]:
        """Fences of the jobs that have ended for good."""
        return self._chains.fences

    @property
    def draining(self) -> Collection[str]:
        """Ids of draining workers."""
        return self.membership.draining

    def settings_of(self, job: str) -> JobSettings | None:
        """Settings in force for a job. None: it has no group."""
        return self._chains.settings_of(job)

    def unsettled(self, worker_id: str) -> Collection[GroupId]:
        """Groups of which the worker may have versions that no whole member has."""
        return self.returned.unsettled(worker_id)

    def members(self) -> Collection[str]:
        """Ids of the members of all groups. A live view."""
        return self.table.members()
