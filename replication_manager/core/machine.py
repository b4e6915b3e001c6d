"""The replication manager's core: who is there, who holds what, who should (Rhino 4.2.2, phase 1, and 4.2.3).

It decides membership only; no decision of it ever deletes a copy, and sidecars refuse what is older than they know.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from replication_manager.core import events as ev
from replication_manager.core import groups as rules
from replication_manager.core.bootstrap import Bootstrap
from replication_manager.core.chains import Chains
from replication_manager.core.lagging import LagCap, Laggards
from replication_manager.core.logged import LoggedVersions
from replication_manager.core.membership import Membership, Report, WorkerRecord, WorkerState
from replication_manager.core.replacing import Replacements
from replication_manager.core.returned import Returned
from rhino.errors import (
    AlreadyThereError,
    ConflictError,
    PreconditionError,
    UnavailableError,
    UnknownError,
)
from rhino.ids import (
    DiskState,
    Epoch,
    GroupId,
    Member,
    ReplicaGroup,
    StoreId,
    StoreVersion,
    Version,
    Worker,
)


class ReplicationMachine:
    """`handle` raises a RhinoError for a refused Registered, Resolve or Change, and has then changed nothing."""

    def __init__(
        self,
        *,
        generation: int,
        lease_s: float,
        suspect_lease_s: float,
        now: float,
        workers: Iterable[Worker] = (),
        groups: Iterable[ReplicaGroup] = (),
        floors: Iterable[StoreVersion] = (),
        forgotten: Mapping[str, Epoch] | None = None,
        draining: Iterable[str] = (),
        lag_cap: LagCap | None = None,
        fresh: bool = False,
    ) -> None:
        """`fresh`: this is the first life of an empty journal."""
        self.membership = Membership(lease_s, suspect_lease_s)
        for worker in workers:
            self.membership.restore(worker, now)
        self.floors: dict[StoreId, Version] = {floor.store: floor.version for floor in floors}
        self.forgotten = dict(forgotten or {})  # jobs that have ended for good, with the epoch that fences them off
        self.logged = LoggedVersions()
        self.returned = Returned()
        self._bootstrap = Bootstrap(fresh=fresh)
        self.laggards = Laggards(lag_cap or LagCap(), now)
        self._now = now
        self._chains = Chains(generation, self.membership, groups, lambda: self.laggards.resting(self._now))
        self._replacements = Replacements(self.laggards, self._chains, self.membership)
        self._chains.draining.update(draining)

    @property
    def generation(self) -> int:
        return self._chains.generation

    @property
    def groups(self) -> Mapping[GroupId, ReplicaGroup]:
        return self._chains.groups

    @property
    def draining(self) -> Collection[str]:
        """Workers that are to be emptied."""
        return self._chains.draining

    def sizes(self) -> Mapping[object, int]:
        """Bytes of each group: the most that any present worker stores of it."""
        return self._chains.sizes()

    # ---------------------------------------------------------------- contract

    def handle(self, event: ev.Event, *, now: float) -> list[ev.Effect]:
        self._chains.next_event()
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
                doubtful = record is not None and record.state is WorkerState.SUSPECT
                return self._chains.doubt(record) if record is not None and doubtful else []
            case ev.Leaving():
                record = self._process(event.worker_id, event.process_id)
                if record is None:
                    return []
                self.membership.leave(record)
                return [*self._chains.mend_all(), ev.PublishWorkers()]
            case ev.Resolve():
                return self._resolve(event)
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
        record.disk, record.disk_message = event.disk, event.disk_message
        effects += self._overtaken(worker, event.reports)
        for group in self._chains.fewest_whole_first():
            effects += self._chains.mend(group, rules.known_as(group.members, worker))
        for report in event.reports:
            effects += self._hear(worker, report)
        self.returned.note(worker, event.reports, now)
        return [*effects, *self._join_sources(), ev.PublishWorkers()]

    def _overtaken(self, worker: Worker, reports: Iterable[Report]) -> list[ev.Effect]:
        """Groups of which the worker has seen a later epoch: the journal is an old one, and only the worker can be
        believed to be whole."""
        effects: list[ev.Effect] = []
        for report in reports:
            group = self.groups.get(report.group)
            if group is None or report.epoch <= group.epoch:
                continue
            others = [m.worker for m in group.members if m.worker.worker_id != worker.worker_id]
            outside = not report.whole and group.member(worker.worker_id) is None  # it has heard of the group, no more
            chain = tuple(others) if outside else (worker, *others)[: group.settings.replication_factor + 1]
            effects += self._chains.renew(group, rules.held_by(chain, {worker.worker_id} if report.whole else ()))
        return effects

    def _beat(self, event: ev.Beat, now: float) -> list[ev.Effect]:
        record = self.membership.records.get(event.worker_id)
        known = record is not None and record.worker.incarnation == event.incarnation and record.process_id
        if record is None or not known or record.state is WorkerState.LOST:
            raise UnavailableError(f"worker {event.worker_id!r} is not registered: register again")
        self.membership.beat(record, now)
        record.stored_bytes, record.free_bytes = event.stored_bytes, event.free_bytes
        record.resident_bytes_max, record.replicated_bytes = event.resident_bytes_max, event.replicated_bytes
        recovered = record.disk is not DiskState.OK and event.disk is DiskState.OK
        record.disk, record.disk_message = event.disk, event.disk_message
        record.lags = event.lags
        effects = self._chains.mend_all() if recovered else []  # what nobody had room for
        for report in event.changed:
            if report.group.job in self.forgotten:
                continue  # it is deleting it
            record.reports[report.group] = report
            effects += self._hear(record.worker, report)
        return [*effects, *self._join_sources(), *self._replacements.due(now)]

    def _hear(self, worker: Worker, report: Report) -> list[ev.Effect]:
        """A report may make a member whole, or show who wrote a logged batch."""
        effects: list[ev.Effect] = []
        group = self.groups.get(report.group)
        member = group.member(worker.worker_id) if group else None
        if group and member and report.whole and report.epoch == group.epoch and not member.whole:
            whole = tuple(Member(m.worker, True) if m is member else m for m in group.members)
            self.membership.records[worker.worker_id].doubted.discard(group.group)
            effects += self._chains.mend(group, whole)
        return effects + self._part_from_sources(report.group) + self._follow(report.group)

    def _join_sources(self) -> list[ev.Effect]:
        """Returned workers with versions that no whole member has join, so that the others catch up from them."""
        effects: list[ev.Effect] = []
        for group_id in self.returned.groups():
            group, records = self.groups.get(group_id), self.membership.records
            if group is None:
                continue
            joining = self.returned.sources(group, records, self.floors, self.membership.is_present)
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
            return [ev.PublishWorkers()]  # nobody is there to take what they held, and they may all come back
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
        return self._chains.start(event.group, record.worker, event.settings)

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
        staying = sum(m.worker.worker_id not in self.draining for m in group.members)
        longer = staying > group.settings.replication_factor + 1  # after a handover that was given up
        if event.make_owner and (longer or event.make_owner != group.owner.worker_id):
            grown = replace(group, members=members)
            members = self._chains.owned_by(grown, event.make_owner)
            self.logged.restart(event.group)
        return self._chains.renew(group, members) if members != group.members else []

    # ---------------------------------------------------------------- forgetting

    def _forget_job(self, event: ev.JobForgotten) -> list[ev.Effect]:
        """The fence lies above every epoch that the job's groups ever had: a late writer cannot revive them."""
        job, records = event.job, self.membership.records.values()
        groups = tuple(sorted(group for group in self.groups if group.job == job))
        reported = any(r.group.job == job and r.stored_files for record in records for r in record.reports.values())
        if job in self.forgotten and not groups:
            return [ev.PublishForgotten(job, self.forgotten[job])]
        if not groups and not reported:
            raise UnknownError(f"job {job!r}: no worker stores anything of it")
        self.forgotten[job] = fence = self._chains.next_epoch()
        self._chains.forget_settings(job)
        for record in records:
            record.reports = {group: report for group, report in record.reports.items() if group.job != job}
        return [ev.PersistForgotten(job, fence), self._drop(groups), ev.PublishForgotten(job, fence)]

    def _drop(self, groups: tuple[GroupId, ...]) -> ev.DropGroups:
        for group in groups:
            self._chains.drop(group)
            self.logged.forget(group)
        gone = set(groups)
        floors = tuple(store for store in self.floors if store.group in gone)
        for store in floors:
            del self.floors[store]
        return ev.DropGroups(groups, floors)

    def _forget_worker(self, event: ev.WorkerForgotten) -> list[ev.Effect]:
        """Its groups go on with their other members; one that has none ends, and may be made anew."""
        record = self.membership.records.get(event.worker_id)
        if record is None:
            raise UnknownError(f"worker {event.worker_id!r} is not known")
        if record.present:
            raise PreconditionError(f"worker {event.worker_id!r} is {record.state.value}: stop its sidecar first")
        del self.membership.records[event.worker_id]
        self._bootstrap.give_up(event.worker_id)
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
        """Groups of the worker get replacements; it stays a member until these are whole."""
        if event.worker_id not in self.membership.records:
            raise UnknownError(f"worker {event.worker_id!r} is not known")
        if event.draining == (event.worker_id in self.draining):
            return []
        return [*self._chains.set_draining(event.worker_id, event.draining), *self._chains.mend_all()]

    # ---------------------------------------------------------------- logged batches

    def _published(self, event: ev.BatchPublished) -> list[ev.Effect]:
        if event.job in self.forgotten:
            return []
        raised = []
        for floor in event.floors:
            current = self.floors.get(floor.store)
            if current is None or floor.version.version > current.version:
                self.floors[floor.store] = floor.version
                raised.append(floor)
        for logged in event.logged:
            self.logged.note(logged)
        effects: list[ev.Effect] = [ev.PersistFloor(floor) for floor in raised]
        if raised:
            effects.append(ev.PublishFloors(tuple(raised)))
        for group in sorted({logged.store.group for logged in event.logged}):
            effects += self._follow(group)
        return effects

    def _follow(self, group_id: GroupId) -> list[ev.Effect]:
        """Ownership follows logged batches, with hysteresis; not to a worker that is to be emptied."""
        group = self.groups.get(group_id)
        writer = self.logged.steady_writer(group_id, self.membership.records.values())
        member = group.member(writer) if group else None
        if group is None or member is None or writer == group.owner.worker_id:
            return []
        if not member.whole or writer in self.draining or not self.membership.is_present(member.worker):
            return []
        return self._chains.renew(group, self._chains.owned_by(group, writer))
