"""The core of the replication manager: membership, copies and placement (Rhino 4.2.2, phase 1, and 4.2.3).

It decides membership only. None of its decisions deletes a copy, and sidecars refuse epochs older than they know.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from replication_manager.protocol import events as ev
from replication_manager.protocol import groups as rules
from replication_manager.protocol.bootstrap import Bootstrap
from replication_manager.protocol.chains import Chains
from replication_manager.protocol.following import Following
from replication_manager.protocol.impaired import Impaired
from replication_manager.protocol.lagging import LagCap, Laggards
from replication_manager.protocol.logged import LoggedVersions, check_published
from replication_manager.protocol.membership import RETURN_LEASE_S, Membership, Report, WorkerRecord, WorkerState
from replication_manager.protocol.replacing import Replacements
from replication_manager.protocol.resettling import Resettling
from replication_manager.protocol.returned import Returned
from rhino_core.errors import AlreadyThereError, ConflictError, PreconditionError, UnavailableError, UnknownError
from rhino_core.ids import (
    DiskState,
    Epoch,
    GroupId,
    JobSettings,
    Member,
    ReplicaGroup,
    StoreId,
    StoreVersion,
    Version,
    Worker,
)


class ReplicationMachine:
    """`handle` raises a RhinoError for an event that it refuses, such as a Registered or a Change.

    A refused event has changed nothing.
    """

    def __init__(
        self,
        *,
        generation: int,
        life: int = 0,
        lease_s: float,
        suspect_lease_s: float,
        return_lease_s: float = RETURN_LEASE_S,
        now: float,
        workers: Iterable[Worker] = (),
        groups: Iterable[ReplicaGroup] = (),
        floors: Iterable[StoreVersion] = (),
        forgotten: Mapping[str, Epoch] | None = None,
        draining: Iterable[str] = (),
        lag_cap: LagCap | None = None,
        fresh: bool = False,
    ) -> None:
        """`fresh`: the journal is in its first lifetime. `life`: a random number of PROCESS_BITS bits."""
        self.membership = Membership(lease_s, suspect_lease_s, return_lease_s)
        for worker in workers:
            self.membership.restore(worker, now)
        self.floors: dict[StoreId, Version] = {floor.store: floor.version for floor in floors}
        self.forgotten = dict(forgotten or {})  # jobs that have ended for good, with their fences
        self.logged = LoggedVersions()
        self.returned = Returned()
        self._bootstrap = Bootstrap(fresh=fresh)
        self.laggards = Laggards(lag_cap or LagCap(), now)
        self._now = now
        self.impaired = Impaired(self.membership)
        self._chains = Chains(
            generation,
            life,
            self.membership,
            groups,
            lambda: self.laggards.resting(self._now),
            self.impaired,
            self.returned.joined,
        )
        self._replacements = Replacements(self.laggards, self._chains, self.membership, self.logged)
        self._resettling = Resettling(self._chains)
        self._following = Following(self.logged, self._chains, self.membership, self.returned)
        self._chains.draining.update(draining)

    @property
    def generation(self) -> int:
        return self._chains.generation

    @property
    def groups(self) -> Mapping[GroupId, ReplicaGroup]:
        return self._chains.groups

    def settings_of(self, job: str) -> JobSettings | None:
        """Settings in force for a job. None: it has no group."""
        return self._chains.settings_of(job)

    @property
    def draining(self) -> Collection[str]:
        """Workers that are being drained."""
        return self._chains.draining

    def unsettled_sources(self, group: GroupId) -> Collection[str]:
        """Workers that may have versions of the group that no whole member has."""
        return self.returned.unsettled(group)

    def sizes(self) -> Mapping[object, int]:
        """Bytes of each group: the maximum that any present worker stores of it."""
        return self._chains.sizes()

    # ---------------------------------------------------------------- contract

    def handle(self, event: ev.Event, *, now: float) -> list[ev.Effect]:
        self._chains.next_event(now)
        self._now = now
        match event:
            case ev.Registered():
                return self._registered(event, now)
            case ev.Beat():
                return self._beat(event, now)
            case ev.StreamBroken():
                record = self._process(event.worker_id, event.process_id)
                if record is not None:
                    self.membership.suspect(record, now)
                return []
            case ev.Refused():
                record = self._process(event.worker_id, event.process_id)
                suspected = record is not None and record.state is WorkerState.SUSPECT
                return self._chains.suspect(record) if record is not None and suspected else []
            case ev.Leaving():
                record = self._process(event.worker_id, event.process_id)
                if record is None:
                    return []
                for_good = event.worker_id in self.draining
                self.membership.leave(record, now, for_good=for_good)
                effects = self._chains.mend_all() if for_good else self._chains.suspect(record)
                return [*effects, ev.PublishWorkers()]
            case ev.Resolve():
                return self._resolve(event)
            case ev.SettingsNamed():
                return self._resettling.named(event.job, event.settings)
            case ev.ExecutorsNamed():
                return self._executors_named(event)
            case ev.BatchPublished():
                return self._published(event)
            case ev.Change():
                return self._change(event)
            case ev.JobForgotten():
                return self._forget_job(event)
            case ev.WorkerForgotten():
                return self._forget_worker(event)
            case ev.DrainSet():
                return self._drain(event)
            case ev.Tick():
                return self._expire(now)

    def next_deadline(self) -> float | None:
        times = (self.membership.next_deadline(), self.laggards.next_deadline())
        return min((at for at in times if at is not None), default=None)

    def check_invariants(self) -> None:
        for group in self.groups.values():
            ids = [m.worker.worker_id for m in group.members]
            assert ids, f"{group.group} has no members"
            assert len(set(ids)) == len(ids), f"{group.group} has a member twice"
            assert group.required_copies == rules.required_copies(group.settings, group.members)
            assert group.epoch <= self._chains.newest_epoch

    # ---------------------------------------------------------------- workers

    def _process(self, worker_id: str, process_id: str) -> WorkerRecord | None:
        record = self.membership.records.get(worker_id)
        return record if record is not None and record.process_id == process_id else None

    def _registered(self, event: ev.Registered, now: float) -> list[ev.Effect]:
        worker = event.worker
        if self.membership.taken_by_another(worker.worker_id, event.process_id):
            raise AlreadyThereError(
                f"worker id {worker.worker_id!r} is in use by another live sidecar: give each one its own --worker-id"
            )
        effects: list[ev.Effect] = [ev.PersistWorker(worker)]
        seen = max((event.highest_epoch, *(report.epoch for report in event.reports)))
        named = [known for known in event.known if known.worker_id != worker.worker_id]
        effects += [ev.PersistWorker(w) for w in self._bootstrap.unheard(named, self.membership, now)]
        effects += self._chains.exceed(seen)
        reports = tuple(report for report in event.reports if report.group.job not in self.forgotten)
        record = self.membership.register(worker, event.process_id, reports, now)
        record.disk, record.disk_message, record.version = event.disk, event.disk_message, event.version
        self.impaired.look(record, self.groups, now)
        effects += self._overtaken(worker, event.reports)
        for group in self._chains.fewest_whole_first():
            effects += self._chains.mend(group, rules.known_as(group.members, worker))
        for report in event.reports:
            effects += self._hear(worker, report)
        effects += self._replacements.take_back(record)
        self.returned.registered(worker, reports, self.groups, now)
        return [*effects, *self._join_sources(), ev.PublishWorkers()]

    def _overtaken(self, worker: Worker, reports: Iterable[Report]) -> list[ev.Effect]:
        """Renews groups of which the worker has seen a later epoch.

        In that case the journal is an old one, and of all members only this worker can be trusted to be whole.
        """
        effects: list[ev.Effect] = []
        for report in reports:
            group = self.groups.get(report.group)
            if group is None or report.epoch <= group.epoch:
                continue
            others = [m.worker for m in group.members if m.worker.worker_id != worker.worker_id]
            outside = not report.whole and group.member(worker.worker_id) is None  # it only knows of the group
            chain = tuple(others) if outside else (worker, *others)[: group.settings.replication_factor + 1]
            effects += self._chains.renew(group, rules.held_by(chain, {worker.worker_id} if report.whole else ()))
        return effects

    def _beat(self, event: ev.Beat, now: float) -> list[ev.Effect]:
        record = self.membership.records.get(event.worker_id)
        known = record is not None and record.worker.incarnation == event.incarnation and record.process_id
        if record is None or not known or record.ended:
            raise UnavailableError(f"worker {event.worker_id!r} is not registered: register again")
        back = not self.membership.is_heard(record.worker, now)
        self.membership.beat(record, now)
        record.stored_bytes, record.free_bytes = event.stored_bytes, event.free_bytes
        record.resident_bytes_max, record.replicated_bytes = event.resident_bytes_max, event.replicated_bytes
        recovered = record.disk is not DiskState.OK and event.disk is DiskState.OK
        record.disk, record.disk_message = event.disk, event.disk_message
        record.lags = event.lags
        effects = self._chains.mend_all() if recovered else []  # places copies for which no worker had room
        if self.impaired.look(record, self.groups, now):
            effects += self._chains.reconsider(event.worker_id)
        if back and self.impaired.ids():
            effects += self._chains.mend_all()  # it may be able to take over from impaired owners
        for report in event.changed:
            if report.group.job in self.forgotten:
                continue  # the worker is deleting it
            record.reports[report.group] = report
            effects += self._hear(record.worker, report)
        return [*effects, *self._join_sources(), *self._replacements.due(now)]

    def _hear(self, worker: Worker, report: Report) -> list[ev.Effect]:
        """Handles a report. It may make a member whole, or show who wrote a logged batch."""
        effects: list[ev.Effect] = []
        group = self.groups.get(report.group)
        member = group.member(worker.worker_id) if group else None
        said = group and member and report.whole and report.epoch == group.epoch and not member.whole
        if group and member and said and not self.impaired.may_have_missed(group, worker.worker_id):
            whole = tuple(Member(m.worker, True) if m is member else m for m in group.members)
            self.membership.records[worker.worker_id].suspected.discard(group.group)
            effects += self._chains.mend(group, whole)
            effects += self._following.whole(report.group, worker.worker_id)
        effects += self._part_from_sources(report.group)
        return effects + self._resettling.shorten(report.group) + self._following.follow(report.group)

    def _join_sources(self) -> list[ev.Effect]:
        """Lets returned workers join that have versions that no whole member has. The others catch up from them."""
        effects: list[ev.Effect] = []
        for group_id in self.returned.groups():
            group, records = self.groups.get(group_id), self.membership.records
            if group is None:
                continue
            logged = {newest.store: newest.version for newest in self.logged.newest(group_id)}
            joining = self.returned.sources(group, records, self.floors, logged, self.membership.is_present)
            if joining:
                effects += self._chains.mend(group, (*group.members, *rules.held_by(joining, ())))
        return effects

    def _part_from_sources(self, group_id: GroupId) -> list[ev.Effect]:
        group = self.groups.get(group_id)
        leaving = self.returned.take_superfluous(group, self.membership.records, self.draining) if group else ()
        if group is None or not leaving:
            return []
        return self._chains.renew(group, tuple(m for m in group.members if m.worker.worker_id not in leaving))

    def _expire(self, now: float) -> list[ev.Effect]:
        if not self.membership.expired(now):
            return self._chains.mend_all() if self.laggards.rested(now) else []
        if self.membership.silent(now):
            return [ev.PublishWorkers()]  # no worker is left to take over, and all of them may come back
        return [*self._chains.mend_all(), ev.PublishWorkers()]

    # ---------------------------------------------------------------- groups

    def _resolve(self, event: ev.Resolve) -> list[ev.Effect]:
        if event.group in self.groups:
            return []
        if event.group.job in self.forgotten:
            raise PreconditionError(
                f"job {event.group.job} was forgotten and its state deleted: start the query with a new checkpoint"
            )
        record = self.membership.records.get(event.worker_id)
        if record is None or not record.present:
            raise UnavailableError(f"worker {event.worker_id!r} is not registered with this manager")
        if awaited := self._bootstrap.awaited(self.membership.records.values()):
            raise UnavailableError(
                f"group {event.group}: this manager began with an empty journal, and workers that may hold the group "
                f"have not registered yet: {', '.join(awaited)}"
            )
        effects = self._chains.start(event.group, record.worker, event.settings)
        self.returned.made(event.group)
        return effects

    def _executors_named(self, event: ev.ExecutorsNamed) -> list[ev.Effect]:
        """Moves nothing: it counts when a member is chosen the next time. Not journalled."""
        if event.job not in self.forgotten:
            self._chains.near[event.job] = event
        return []

    def _change(self, event: ev.Change) -> list[ev.Effect]:
        group = self.groups.get(event.group)
        if group is None:
            raise UnknownError(f"group {event.group} is not known")
        if event.expected is not None and event.expected != group.epoch:
            raise ConflictError(f"group {event.group} is at epoch {group.epoch}, not {event.expected}: plan again")
        members = group.members
        if event.add_member and group.member(event.add_member) is None:
            record = self.membership.records.get(event.add_member)
            if record is None:
                raise UnknownError(f"worker {event.add_member!r} is not known")
            if not record.present:
                raise UnavailableError(f"worker {event.add_member!r} is not live")
            if event.add_member in self.draining:
                raise PreconditionError(f"worker {event.add_member!r} is being drained: choose another")
            if record.disk is not DiskState.OK:
                raise PreconditionError(
                    f"worker {event.add_member!r} takes no files: disk {record.disk.value}, {record.disk_message}"
                )
            members = (*members, Member(record.worker, False))
            self.returned.added(event.group, event.add_member)
        staying = sum(m.worker.worker_id not in self.draining for m in group.members)
        longer = staying > group.settings.replication_factor + 1  # after a handover that was given up
        if event.make_owner and (longer or event.make_owner != group.owner.worker_id):
            grown = replace(group, members=members)
            members = self._chains.owned_by(grown, event.make_owner)
            self.returned.owner_set(event.group)
            self.logged.restart(event.group)
        return self._chains.renew(group, members) if members != group.members else []

    # ---------------------------------------------------------------- forgetting

    def _forget_job(self, event: ev.JobForgotten) -> list[ev.Effect]:
        """Forgets a job. The fence lies above every epoch of its groups, so a late writer cannot revive them."""
        job, records = event.job, self.membership.records.values()
        groups = tuple(sorted(group for group in self.groups if group.job == job))
        reported = any(r.group.job == job and r.stored_files for record in records for r in record.reports.values())
        if job in self.forgotten and not groups:
            return [ev.PublishForgotten(job, self.forgotten[job])]
        if not groups and not reported:
            raise UnknownError(f"job {job!r}: no worker stores anything of it")
        self.forgotten[job] = fence = self._chains.next_epoch()
        self._chains.forget_settings(job)
        self.returned.forget_job(job)
        for record in records:
            record.reports = {group: report for group, report in record.reports.items() if group.job != job}
        return [ev.PersistForgotten(job, fence), self._drop(groups), ev.PublishForgotten(job, fence)]

    def _drop(self, groups: tuple[GroupId, ...]) -> ev.DropGroups:
        for group in groups:
            self._chains.drop(group)
            self._resettling.forget(group)
            self._following.forget(group)
            self.logged.forget(group)
        gone = set(groups)
        floors = tuple(store for store in self.floors if store.group in gone)
        for store in floors:
            del self.floors[store]
        return ev.DropGroups(groups, floors)

    def _forget_worker(self, event: ev.WorkerForgotten) -> list[ev.Effect]:
        """Removes a worker from its groups. A group without other members ends, and may be created again."""
        record = self.membership.records.get(event.worker_id)
        if record is None:
            raise UnknownError(f"worker {event.worker_id!r} is not known")
        if not record.ended:
            raise PreconditionError(f"worker {event.worker_id!r} is {record.state.value}: stop its sidecar first")
        del self.membership.records[event.worker_id]
        self._bootstrap.give_up(event.worker_id)
        self.returned.forget_worker(event.worker_id)
        self.impaired.forget(event.worker_id)
        effects: list[ev.Effect] = [ev.DropWorker(event.worker_id)]
        if event.worker_id in self.draining:
            effects += self._chains.set_draining(event.worker_id, False)
        ended: list[GroupId] = []
        for group in self._chains.fewest_whole_first():
            rest = tuple(m for m in group.members if m.worker.worker_id != event.worker_id)
            if not rest:
                ended.append(group.group)
            elif rest != group.members:
                effects += self._chains.mend(group, rest)
        return [*effects, self._drop(tuple(sorted(ended))), ev.PublishWorkers()]

    # ---------------------------------------------------------------- draining

    def _drain(self, event: ev.DrainSet) -> list[ev.Effect]:
        """Gives the groups of the worker replacements. The worker stays a member until these are whole."""
        if event.worker_id not in self.membership.records:
            raise UnknownError(f"worker {event.worker_id!r} is not known")
        if event.draining == (event.worker_id in self.draining):
            return []
        return [*self._chains.set_draining(event.worker_id, event.draining), *self._chains.mend_all()]

    # ---------------------------------------------------------------- logged batches

    def _published(self, event: ev.BatchPublished) -> list[ev.Effect]:
        if event.job in self.forgotten:
            return []
        check_published(event)
        raised = []
        for floor in event.floors:
            current = self.floors.get(floor.store)
            if current is None or floor.version.version > current.version:
                self.floors[floor.store] = floor.version
                raised.append(floor)
        for logged in event.logged:
            self.logged.add(logged)
        effects: list[ev.Effect] = [ev.PersistFloor(floor) for floor in raised]
        if raised:
            effects.append(ev.PublishFloors(tuple(raised)))
        for group in sorted({logged.store.group for logged in event.logged}):
            effects += self._following.follow(group)
        return effects
