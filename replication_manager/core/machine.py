"""The replication manager's core: who is there, who holds what, who should (Rhino 4.2.2, phase 1, and 4.2.3).

It decides membership only; no decision of it ever deletes a copy, and sidecars refuse what is older than they know.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from replication_manager.core import events as ev
from replication_manager.core import groups as rules
from replication_manager.core import placement
from replication_manager.core.membership import Membership, Report, WorkerRecord, WorkerState
from rhino.errors import AlreadyThereError, ConflictError, TooFewWorkersError, UnavailableError, UnknownError
from rhino.ids import (
    NO_EPOCH,
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

OWNER_STREAK = 2  # logged batches in a row that another member wrote before it becomes the owner
LOGGED_KEPT = 16  # logged versions remembered per store, to match reports that come later


@dataclass(slots=True)
class GroupNotes:
    """What is known of a group beside its membership. Not journalled: it is learnt again."""

    logged: dict[StoreId, deque[Version]] = field(default_factory=dict)
    writer: str = ""
    streak: int = 0
    counted: StoreVersion | None = None  # newest version that the streak has counted


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
    ) -> None:
        self.generation = generation
        self.membership = Membership(lease_s, suspect_lease_s)
        for worker in workers:
            self.membership.restore(worker, now)
        self.groups: dict[GroupId, ReplicaGroup] = {group.group: group for group in groups}
        self.floors: dict[StoreId, Version] = {floor.store: floor.version for floor in floors}
        self.notes: dict[GroupId, GroupNotes] = {}
        self._counter = 0

    # ---------------------------------------------------------------- contract

    def handle(self, event: ev.Event, *, now: float) -> list[ev.Effect]:
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
            case ev.Leaving():
                record = self._process(event.worker_id, event.process_id)
                if record is None:
                    return []
                record.lease_ends = now
                return self._expire(now)
            case ev.Resolve():
                return self._resolve(event)
            case ev.BatchPublished():
                return self._published(event)
            case ev.Change():
                return self._change(event)
            case ev.Tick():
                return self._expire(now)

    def next_deadline(self) -> float | None:
        return self.membership.next_deadline()

    def check_invariants(self) -> None:
        for group in self.groups.values():
            ids = [m.worker.worker_id for m in group.members]
            assert ids, f"{group.group} has no members"
            assert len(set(ids)) == len(ids), f"{group.group} has a member twice"
            assert group.required_copies == rules.required_copies(group.settings, group.members)
            assert group.epoch.generation <= self.generation

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
        if event.highest_epoch.generation >= self.generation and event.highest_epoch > Epoch(
            self.generation, self._counter
        ):
            self.generation = event.highest_epoch.generation + 1
            self._counter = 0
            effects.append(ev.PersistGeneration(self.generation))
        self.membership.register(worker, event.process_id, event.reports, now)
        for group in list(self.groups.values()):
            members = rules.known_as(group.members, worker)
            if members != group.members:
                effects += self._renew(group, members)
        effects += self._fill_all()
        for report in event.reports:
            effects += self._hear(worker, report)
        return [*effects, ev.PublishWorkers()]

    def _beat(self, event: ev.Beat, now: float) -> list[ev.Effect]:
        record = self.membership.records.get(event.worker_id)
        if record is None or record.worker.incarnation != event.incarnation or record.state is WorkerState.LOST:
            raise UnavailableError(f"worker {event.worker_id!r} is not registered: register again")
        self.membership.beat(record, now)
        record.stored_bytes, record.free_bytes = event.stored_bytes, event.free_bytes
        record.resident_bytes_max, record.replicated_bytes = event.resident_bytes_max, event.replicated_bytes
        effects: list[ev.Effect] = []
        for report in event.changed:
            record.reports[report.group] = report
            effects += self._hear(record.worker, report)
        return effects

    def _hear(self, worker: Worker, report: Report) -> list[ev.Effect]:
        """A report may make a member whole, or show who wrote a logged batch."""
        effects: list[ev.Effect] = []
        group = self.groups.get(report.group)
        member = group.member(worker.worker_id) if group else None
        if group and member and report.whole and report.epoch == group.epoch and not member.whole:
            whole = tuple(Member(m.worker, True) if m is member else m for m in group.members)
            effects += self._renew(group, whole)
        return effects + self._follow(report.group)

    def _expire(self, now: float) -> list[ev.Effect]:
        gone = self.membership.expired(now)
        if not gone:
            return []
        effects: list[ev.Effect] = []
        for record in gone:
            for group in list(self.groups.values()):
                if group.member(record.worker.worker_id) is not None:
                    effects += self._lose(group, record.worker.worker_id)
        return [*effects, ev.PublishWorkers()]

    def _lose(self, group: ReplicaGroup, worker_id: str) -> list[ev.Effect]:
        members = rules.without(group.members, worker_id, self.membership.is_present)
        if members == group.members:
            return []
        return self._renew(group, self._filled(group, members))

    # ---------------------------------------------------------------- groups

    def _next_epoch(self) -> Epoch:
        self._counter += 1
        return Epoch(self.generation, self._counter)

    def _renew(self, group: ReplicaGroup, members: rules.Members) -> list[ev.Effect]:
        new = rules.renewed(group, self._next_epoch(), members)
        self.groups[new.group] = new
        return [ev.PersistGroup(new), ev.PublishGroup(new)]

    def sizes(self) -> Mapping[object, int]:
        """Bytes of each group: the most that any present worker stores of it."""
        found: dict[object, int] = {}
        for record in self.membership.records.values():
            for report in record.reports.values() if record.present else ():
                found[report.group] = max(found.get(report.group, 0), report.stored_bytes)
        return found

    def _chosen(self, count: int, taken: list[Worker]) -> list[Worker]:
        bins = placement.loads(self.membership.present(), self.groups.values(), self.sizes())
        return placement.choose(bins, count, taken)

    def _filled(self, group: ReplicaGroup, members: rules.Members) -> rules.Members:
        """Members with replacements, not whole yet, up to r secondaries."""
        lacking = group.settings.replication_factor + 1 - len(members)
        if lacking <= 0:
            return members
        added = self._chosen(lacking, [m.worker for m in members])
        return (*members, *(Member(worker, False) for worker in added))

    def _fill_all(self) -> list[ev.Effect]:
        effects: list[ev.Effect] = []
        fewest_first = sorted(self.groups.values(), key=lambda g: sum(m.whole for m in g.members))
        for group in fewest_first:
            members = self._filled(group, group.members)
            if members != group.members:
                effects += self._renew(group, members)
        return effects

    def _resolve(self, event: ev.Resolve) -> list[ev.Effect]:
        if event.group in self.groups:
            return []
        record = self.membership.records.get(event.worker_id)
        if record is None or not record.present:
            raise UnavailableError(f"worker {event.worker_id!r} is not registered with this manager")
        members = self._new_chain(event.group, record.worker, event.settings)
        group = ReplicaGroup(event.group, NO_EPOCH, members, 1, event.settings)
        return self._renew(group, members)

    def _new_chain(self, group: GroupId, owner: Worker, settings: JobSettings) -> rules.Members:
        """All whole: there is nothing to hold yet. Operators of one task get the same chain."""
        for other in self.groups.values():
            alike = (other.group.job, other.group.partition, other.owner) == (group.job, group.partition, owner)
            if (
                alike
                and other.settings == settings
                and all(self.membership.is_present(m.worker) for m in other.members)
            ):
                return tuple(Member(m.worker, True) for m in other.members[: settings.replication_factor + 1])
        chosen = self._chosen(settings.replication_factor, [owner])
        if len(chosen) < settings.replication_factor:
            live = len(self.membership.present())
            raise TooFewWorkersError(
                f"replication factor {settings.replication_factor} needs {settings.replication_factor + 1} workers, "
                f"{live} are live: start more sidecars or lower spark.rhino.replicationFactor"
            )
        return tuple(Member(worker, True) for worker in (owner, *chosen))

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
            members = (*members, Member(record.worker, False))
        longer = len(group.members) > group.settings.replication_factor + 1  # after a handover that was given up
        if event.make_owner and (longer or event.make_owner != group.owner.worker_id):
            members = rules.owned_by(group, event.make_owner, self.membership.is_present)
        return self._renew(group, members) if members != group.members else []

    # ---------------------------------------------------------------- logged batches

    def _published(self, event: ev.BatchPublished) -> list[ev.Effect]:
        raised = []
        for floor in event.floors:
            current = self.floors.get(floor.store)
            if current is None or floor.version.version > current.version:
                self.floors[floor.store] = floor.version
                raised.append(floor)
        for logged in event.logged:
            notes = self.notes.setdefault(logged.store.group, GroupNotes())
            versions = notes.logged.setdefault(logged.store, deque(maxlen=LOGGED_KEPT))
            if not versions or versions[-1] != logged.version:
                versions.append(logged.version)
        effects: list[ev.Effect] = [ev.PersistFloor(floor) for floor in raised]
        if raised:
            effects.append(ev.PublishFloors(tuple(raised)))
        for group in {logged.store.group for logged in event.logged}:
            effects += self._follow(group)
        return effects

    def _follow(self, group_id: GroupId) -> list[ev.Effect]:
        """Ownership follows logged batches, with hysteresis; never a snapshot or an unlogged version."""
        group, notes = self.groups.get(group_id), self.notes.get(group_id)
        if group is None or notes is None:
            return []
        found = self._newest_writer(group_id, notes)
        if found is None or found[1] == notes.counted:
            return []
        writer, notes.counted = found
        notes.streak = notes.streak + 1 if writer == notes.writer else 1
        notes.writer = writer
        member = group.member(writer)
        eligible = member is not None and member.whole and self.membership.is_present(member.worker)
        if writer == group.owner.worker_id or notes.streak < OWNER_STREAK or not eligible:
            return []
        return self._renew(group, rules.owned_by(group, writer, self.membership.is_present))

    def _newest_writer(self, group: GroupId, notes: GroupNotes) -> tuple[str, StoreVersion] | None:
        """Who wrote the newest logged version that some present worker reports as its own."""
        best: tuple[str, StoreVersion] | None = None
        for record in self.membership.records.values():
            report = record.reports.get(group) if record.present else None
            for written in report.newest_written if report else ():
                logged = written.version in notes.logged.get(written.store, ())
                if logged and (best is None or written.version.version > best[1].version.version):
                    best = (record.worker.worker_id, written)
        return best
