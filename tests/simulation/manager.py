"""A simulated manager process: the real ReplicationMachine, its journal, and messages that get lost with a crash."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from replication_manager.protocol import events as ev
from replication_manager.protocol.machine import ReplicationMachine, Restored
from replication_manager.protocol.placement.lagging import LagCap
from replication_manager.protocol.workers.membership import LeaseTimes
from replication_manager.protocol.workers.worker_record import Lag, Report
from rhino_core.errors import RhinoError
from rhino_core.ids import Epoch, GroupId, JobSettings, ReplicaGroup, StoreId, StoreVersion, Worker
from tests.simulation import drain_checkers
from tests.simulation.watches import Watch
from worker_runtime.protocol import events as worker_ev

if TYPE_CHECKING:
    from tests.simulation.cluster import Cluster
    from tests.simulation.sidecar import Sidecar

MANAGER = "manager"
LEASE_S = 2.0
SUSPECT_LEASE_S = 0.6
LAG_CAP_S = 1.0
SETTLE_S = 2.0
BROKEN_STREAM = 0.2  # of lost beats
FALSE_REFUSAL = 0.1  # a firewall answers


@dataclass
class Journal:
    """`fences`: of forgotten jobs. `fresh`: in its first lifetime."""

    generation: int = 0
    workers: dict[str, Worker] = field(default_factory=dict)
    groups: dict[GroupId, ReplicaGroup] = field(default_factory=dict)
    floors: dict[StoreId, StoreVersion] = field(default_factory=dict)
    fences: dict[str, Epoch] = field(default_factory=dict)
    draining: set[str] = field(default_factory=set)
    fresh: bool = False

    def copy(self) -> Journal:
        return Journal(
            self.generation,
            dict(self.workers),
            dict(self.groups),
            dict(self.floors),
            dict(self.fences),
            set(self.draining),
            self.fresh,
        )


class Manager:
    """What the journal does not have is learnt again after a crash."""

    def __init__(self, cluster: Cluster, settings: JobSettings) -> None:
        self._cluster = cluster
        self._world = cluster.world
        self._settings = settings
        self.journal = Journal()
        self._starts = 0
        self._journals = 0  # former ones, whose last generations this one may reach again
        self.forgotten: dict[GroupId, set[str]] = {}  # members beyond the chain's length
        self.up = False

    def start(self) -> None:
        self.up = True
        self._starts += 1
        self.journal.generation += 1
        restored = Restored(
            generation=self.journal.generation,
            workers=self.journal.workers.values(),
            groups=self.journal.groups.values(),
            floors=self.journal.floors.values(),
            forgotten=self.journal.fences,
            draining=self.journal.draining,
            fresh=self.journal.fresh,
        )
        self._settled_at = self._world.now + (SETTLE_S if self.journal.fresh else 0.0)
        if self.journal.fresh:
            settled, start = self.journal, self._starts
            self._world.after(SETTLE_S, lambda: self._settle(settled, start))
        lease_times, lag_cap = LeaseTimes(LEASE_S, SUSPECT_LEASE_S), LagCap(LAG_CAP_S, 0)
        self.core = ReplicationMachine(
            restored, lease_times, now=self._world.now, process_number=self._journals, lag_cap=lag_cap
        )
        self._checked: dict[GroupId, ReplicaGroup] = {}
        self._replacements: dict[GroupId, str] = {}  # of laggards, before the event
        self._watches: dict[str, Watch] = {}
        self._interested: dict[str, set[GroupId]] = {}
        self._world.say(f"manager starts, generation {self.journal.generation}")
        started = self._starts
        self._world.after(0.1, lambda: self._tick(started))

    def crash(self) -> None:
        self._world.say("manager crashes")
        self.up = False
        for watch in self._watches.values():
            watch.close()
        for group in self.core.groups:
            self.forgotten.setdefault(group, set()).update(self.core.returned.joined(group))
        for group, leaving in self.core.laggards.leaving.items():
            self.forgotten.setdefault(group, set()).add(leaving.worker_id)

    def _settle(self, journal: Journal, start: int) -> None:
        if self.up and self._starts == start:
            journal.fresh = False

    @property
    def settling_s(self) -> float:
        return max(0.0, self._settled_at - self._world.now)

    @property
    def draining(self) -> set[str]:
        return self.journal.draining

    def replace_journal(self, copied: Journal | None) -> None:
        """By an older copy, or by a new one, which begins above all generations so far: it follows the clock."""
        if copied is None:
            copied = Journal(generation=self.journal.generation + 1000, fresh=True)
        self.journal = copied
        self._journals += 1
        self._cluster.checkers.journal_replaced()
        for group in copied.groups.values():  # nobody knows any more why a longer one is longer
            self.forgotten.setdefault(group.group, set()).update(m.worker.worker_id for m in group.members)

    def may_stay(self) -> dict[GroupId, set[str]]:
        """Members beyond a chain's length that nobody will send away: forgotten ones, and a drained owner."""
        stay = {group: set(names) for group, names in self.forgotten.items()}
        for group in self.core.groups.values():
            stay.setdefault(group.group, set()).update(self.draining & {group.owner.worker_id})
        return stay

    def _tick(self, start: int) -> None:
        if self.up and self._starts == start:
            self._handle(ev.Tick())
            self._world.after(0.1, lambda: self._tick(start))

    def _handle(self, event: ev.Event) -> bool:
        """False when the manager is away or refuses."""
        if not self.up:
            return False
        try:
            before = dict(self.core.groups)
            self._replacements = {group: one.replacement for group, one in self.core.laggards.leaving.items()}
            effects = self.core.handle(event, now=self._world.now)
        except RhinoError as error:
            self._world.say(f"manager refuses {type(event).__name__}: {error}")
            return False
        if self.core.groups != self._checked:  # all that its invariants are about
            self.core.check_invariants()
            self._checked = dict(self.core.groups)
        for effect in effects:
            if isinstance(effect, ev.PersistGroup) and not isinstance(event, ev.Change):
                self._check_owner(before.get(effect.group.group), effect.group)
            self._execute(effect)
        return True

    def _check_drains(self, before: ReplicaGroup | None, group: ReplicaGroup) -> None:
        drain_checkers.given_nothing(before, group, self.draining - self.core.returned.joined(group.group))
        present, resting = self.core.membership.is_present, self.core.laggards.in_cooldown(self._world.now)
        gone = [m for m in before.members if group.member(m.worker.worker_id) is None] if before is not None else []
        left = [m for m in gone if present(m.worker) and m.worker.worker_id not in resting]
        known = {m.worker.worker_id for m in before.members} if before is not None else set()
        come = [self._stored(m.worker.worker_id, group) for m in group.members if m.worker.worker_id not in known]
        begun = [m for m in left if not m.whole]
        given_way = [m for m in begun if self._stored(m.worker.worker_id, group) < max(come, default=0)]
        given_way += [m for m in begun if m.worker.worker_id == self._replacements.get(group.group)]
        drain_checkers.left_others_whole([m for m in left if m not in given_way], group, self.draining, present)

    def _stored(self, worker_id: str, group: ReplicaGroup) -> int:
        report = self.core.membership.records[worker_id].reports.get(group.group)
        return report.stored_bytes if report is not None else 0

    def _check_owner(self, before: ReplicaGroup | None, group: ReplicaGroup) -> None:
        if before is not None:
            live = self.core.membership.is_present(before.owner) and before.members[0].whole
            live = live and before.owner.worker_id not in self.core.impaired.ids()
            live = live and self._cluster.checkers.is_newest(before)  # an older journal has former owners
            self._cluster.checkers.owner_followed(before, group, lost=not live)

    def _execute(self, effect: ev.Effect) -> None:
        match effect:
            case ev.PersistWorker(worker):
                self.journal.workers[worker.worker_id] = worker
            case ev.PersistGeneration(generation):
                self.journal.generation = generation
            case ev.PersistGroup(group):
                if group.group not in self._cluster.checkers.doubtful:
                    self._check_drains(self.journal.groups.get(group.group), group)
                self.journal.groups[group.group] = group
                self._cluster.checkers.group_issued(group)
                members = ">".join(f"{m.worker.worker_id}{'' if m.whole else '?'}" for m in group.members)
                self._world.say(f"group {group.group.partition} epoch {group.epoch} {members} {group.required_copies}")
            case ev.PersistDraining(worker_id, draining):
                (self.draining.add if draining else self.draining.discard)(worker_id)
                self._world.say(f"{worker_id} is {'' if draining else 'not '}to be emptied")
            case ev.PersistFloor(floor):
                self.journal.floors[floor.store] = floor
            case ev.PublishGroup(group):
                for watch in self._watches.values():
                    watch.notify(watch.pending.group_changed(group))
            case _:
                self._execute_end(effect)

    def _execute_end(self, effect: ev.Effect) -> None:
        """Executes the effects of forgetting and of floors."""
        match effect:
            case ev.PersistForgotten(job, fence):
                self.journal.fences[job] = fence
            case ev.DropGroups(groups, stores):
                for store in stores:
                    del self.journal.floors[store]
                for group in groups:
                    del self.journal.groups[group]
                    self.forgotten.pop(group, None)
                for watch in self._watches.values():
                    watch.notify(watch.pending.groups_gone(groups))
                for interested in self._interested.values():
                    interested.difference_update(groups)
            case ev.DropWorker(worker_id):
                del self.journal.workers[worker_id]
                self._interested.pop(worker_id, None)
            case ev.PublishForgotten(job, fence):
                for watch in self._watches.values():
                    watch.notify(watch.pending.job_forgotten(job, fence))
            case ev.PublishFloors(floors):
                for watch in self._watches.values():
                    watch.notify(watch.pending.floors_raised(floors))
            case ev.PublishWorkers():
                for watch in self._watches.values():
                    watch.notify(True)
            case _:
                raise NotImplementedError(f"effect {effect}")

    # ---------------------------------------------------------------- streams of updates

    def reaches(self, sidecar: Sidecar) -> bool:
        return self._cluster.network.passes(MANAGER, sidecar.name)

    def _watch(self, sidecar: Sidecar) -> None:
        """From the beginning; a former stream of the worker ends."""
        self.unwatched_by(sidecar)
        interested = self._interested.setdefault(sidecar.name, set())
        sidecar.watch = self._watches[sidecar.name] = Watch(self, sidecar, interested)

    def unwatched_by(self, sidecar: Sidecar) -> None:
        if former := self._watches.pop(sidecar.name, None):
            former.close()

    # ------------------------------------------------------------ what sidecars call

    def lost_call(self) -> bool:
        return self._world.chance(self._world.faults.lose_call)

    def _hears(self, sidecar: Sidecar) -> bool:
        return self._cluster.network.passes(sidecar.name, MANAGER) and not self.lost_call()

    def _answers(self, sidecar: Sidecar) -> bool:
        """Whether the reply arrives; what was asked for has happened all the same."""
        return self._cluster.network.passes(MANAGER, sidecar.name) and not self.lost_call()

    def _reports(self, sidecar: Sidecar) -> tuple[Report, ...]:
        groups = {*sidecar.machine.view.groups(), *(store.group for store in sidecar.disk.files)}
        reports = tuple(self._report(sidecar, group) for group in sorted(groups))
        for report in reports:
            self._cluster.checkers.reported(sidecar.incarnation, report)
            process = sidecar.name, sidecar.process
            self._cluster.checkers.catch_ups.reported(process, report)
        return reports

    def _report(self, sidecar: Sidecar, group: GroupId) -> Report:
        adopted = sidecar.group(group)
        written = tuple(StoreVersion(s, v) for s, v in sidecar.written.items() if s.group == group)
        epoch = adopted.epoch if adopted else sidecar.machine.view.epoch(group)
        stores = sidecar.catalogue.stores(group)
        held = tuple(StoreVersion(s, v) for s, c in stores.items() if (v := c.newest_held()) is not None)
        files = sum(len(catalogue) for catalogue in stores.values())
        return Report(group, epoch, sidecar.machine.view.whole(group), files, held, written, files)

    def register(self, sidecar: Sidecar) -> bool:
        if not self._hears(sidecar):
            return False
        process = f"{sidecar.name}#{sidecar.process}"
        reports = self._reports(sidecar)
        epoch, disk = sidecar.machine.view.highest_epoch(), sidecar.disk.state
        known = sidecar.disk.known
        taken = self._handle(ev.Registered(sidecar.worker, process, epoch, reports, disk, "simulated", known))
        if taken:
            self._name_executors()
        if not taken or not self._answers(sidecar):
            return False
        self._watch(sidecar)
        return True

    def _name_executors(self) -> None:
        """Executors of all jobs run beside all sidecars, as the driver says."""
        short, names = self._cluster.short_lived, frozenset(self._cluster.sidecars)
        jobs = {store.id.job for store in self._cluster.workload.stores} | ({short.job} if short else set())
        for job in sorted(jobs):
            self._handle(ev.ExecutorsNamed(job, names))

    def beat(self, sidecar: Sidecar) -> bool:
        if not self._hears(sidecar):
            if self._world.chance(BROKEN_STREAM):
                self.stream_broken(sidecar, sidecar.process)
            return True
        record = self.core.membership.records.get(sidecar.name)
        if record is None or record.process_id != f"{sidecar.name}#{sidecar.process}":
            return not self.up  # a stream of a process that this manager does not know: to be registered first
        reports = self._reports(sidecar)
        lags = tuple(
            Lag(lag.group, lag.to, lag.lag_bytes, lag.oldest_s) for lag in sidecar.machine.view.lags(self._world.now)
        )
        beat = ev.Beat(
            sidecar.name, sidecar.worker.incarnation, 0, 0, 0, 0, reports, sidecar.disk.state, "simulated", lags
        )
        taken = self._handle(beat)
        for watch in self._watches.values() if taken else ():
            watch.notify(watch.pending.reported(sidecar.name, (report.group for report in reports)))
        return taken or not self.up

    def stream_broken(self, sidecar: Sidecar, process: int) -> None:
        """Its host then refuses connections while no process is up; now and then it does so for another reason."""
        name = f"{sidecar.name}#{process}"
        self._handle(ev.StreamBroken(sidecar.name, name))

        def probe() -> None:
            if not sidecar.up or self._world.chance(FALSE_REFUSAL):
                self._handle(ev.Refused(sidecar.name, name))

        self._world.after(0.1, probe)

    def resolve(self, sidecar: Sidecar, group: GroupId, *, existing_only: bool) -> bool:
        """False: to be asked again."""
        if not self._hears(sidecar):
            return False
        if self.up and existing_only and group not in self.core.groups:
            return self._answers(sidecar)
        if not self._handle(ev.Resolve(group, sidecar.name, self._settings)):
            return False
        self._interested.setdefault(sidecar.name, set()).add(group)
        reply = worker_ev.GroupAdopted(self.core.groups[group])
        if self._answers(sidecar):
            sidecar.later(self._world.delay(), lambda: sidecar.handle(reply))
            return True
        return False

    def may_write(self, sidecar: Sidecar, group: GroupId, writer: str) -> None:
        """A sidecar asks about a worker that is no member."""
        if not self.up or not self._hears(sidecar) or not self._answers(sidecar):
            return
        answer = worker_ev.WriterNamed(group, writer, self.core.may_use(group, writer))
        sidecar.later(self._world.delay(), lambda: sidecar.handle(answer))

    def may_hold(self, sidecar: Sidecar, group: GroupId) -> frozenset[str] | None:
        """Who may have files of the group; None if there is no answer."""
        if not self.up or not self._hears(sidecar) or not self._answers(sidecar):
            return None
        return frozenset(self.core.may_hold(group)) or None

    def change(self, group: GroupId, *, add_member: str = "", make_owner: str = "") -> bool:
        """Changes a group for the handover manager. False if refused."""
        self._cluster.steady.moved(group, self._world.now)
        return self._handle(ev.Change(group, add_member, make_owner))

    def set_draining(self, worker_id: str, draining: bool) -> bool:
        """Starts or ends a drain for the handover manager. False if refused."""
        return self._handle(ev.DrainSet(worker_id, draining))

    def leave(self, sidecar: Sidecar) -> None:
        """The sidecar is stopped in an orderly way, and says so."""
        if self._hears(sidecar):
            self._handle(ev.Leaving(sidecar.name, f"{sidecar.name}#{sidecar.process}"))

    def forget_job(self, job: str) -> bool:
        """Forgets a job. False if refused, true also if it was forgotten before."""
        return job in self.journal.fences or self._handle(ev.JobForgotten(job))

    def forget_worker(self, worker_id: str) -> bool:
        """Forgets a worker. False if refused."""
        return self._handle(ev.WorkerForgotten(worker_id))

    def published(self, logged: StoreVersion, floor: StoreVersion | None) -> None:
        self._handle(
            ev.BatchPublished(
                logged.store.job, logged.version.version, (logged,), (floor,) if floor is not None else ()
            )
        )
