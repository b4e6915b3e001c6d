"""Both cores of the manager process, with workers, a driver and time that a seed drives.

Who holds which version is modelled: a set of numbers for each worker and group.
"""

from __future__ import annotations

import dataclasses
import random
from collections import defaultdict
from collections.abc import Callable, Iterable

from handover_manager import events as ev
from handover_manager.drive.handover import DrivenHandover
from handover_manager.drive.step import DrivenStep
from handover_manager.plan.work import Work
from handover_manager.view import TaskGroup
from replication_manager.protocol import events as replication
from replication_manager.protocol.workers.worker_record import Report
from rhino.daemons.cluster_port import ClusterPort
from rhino_core.errors import RhinoError
from rhino_core.ids import NO_EPOCH, GroupId, JobSettings, StoreId, StoreVersion, Version, VirtualNode
from rhino_model.handovers import Phase, groups_of
from rhino_model.intents import Drain, Request
from rhino_model.strategy import Kind, Strategy
from tests.replication_manager.protocol.harness import Manager, worker
from workloads.adaptation.scene import JOB, Cluster, Play

PARTITIONS, OPERATORS = 3, (0, 1)
GROUPS = (TaskGroup(0, OPERATORS, PARTITIONS),)
NODES = tuple(VirtualNode(JOB, 0, partition) for partition in range(PARTITIONS))
STEP_S = 0.4
LOCATION = "file:/ckpt/q"


def versions_of(number: int) -> tuple[StoreVersion, ...]:
    stores = [StoreId(*group, "default") for node in NODES for group in groups_of(node, OPERATORS)]
    return tuple(StoreVersion(store, Version(number, f"id-{number}")) for store in stores)


class Replication:
    """The part of the service that `ClusterPort` needs, around the harness's machine."""

    def __init__(self, manager: Manager) -> None:
        self.manager = manager
        self.core = manager.machine
        self.runtime = self
        self._listener: Callable[[Iterable[GroupId]], None] = lambda groups: None

    def subscribe(self, listener: Callable[[Iterable[GroupId]], None]) -> None:
        self._listener = listener

    def handle(self, event: replication.Event) -> None:
        for effect in self.manager.do(event):
            if isinstance(effect, replication.PublishGroup):
                self._listener((effect.group.group,))
            elif isinstance(effect, replication.PublishWorkers | replication.DropWorker | replication.PersistDraining):
                self._listener(())
            elif isinstance(effect, replication.DropGroups):
                self._listener(effect.groups)

    def name_settings(self, job: str, settings: JobSettings) -> None:
        self.handle(replication.SettingsNamed(job, settings))

    def forget_worker(self, worker_id: str, *, dry_run: bool) -> None:
        self.handle(replication.WorkerForgotten(worker_id))

    forget_job = None


class World:
    """`step` does something at random; `settle` ends all faults and waits until nothing is left to do."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.manager = Manager()
        self.loads = random.Random(f"loads {seed}")  # drawn apart, so that the rest of a seed does not depend on them
        self.play = Play(Cluster())
        self.alive: set[str] = set()
        self.away: set[str] = set()
        self.held: dict[tuple[str, GroupId], set[int]] = defaultdict(set)
        self.written: dict[tuple[GroupId, int], str] = {}
        self.logged = 0  # the newest version in the commit log
        self.batch: dict[VirtualNode, str] | None = None  # that runs
        self.session: int | None = None
        self.sessions = self.runs = self.handovers = self.names = 0
        self.map: ev.PushLocations | None = None
        self.answers: list[ev.FindWriters] = []
        self.changes: list[ev.ChangeGroup] = []
        self.refused: list[ev.RefuseQuery] = []
        self.marked: dict[tuple[str, int], int] = {}  # version logged when the step was marked
        self.confirmed: set[tuple[str, int]] = set()
        self.removals = 0
        self._join()
        for _ in range(4):
            self.add_worker()
        self.connect()

    def _join(self) -> None:
        """The two managers of one process."""
        self.replication = Replication(self.manager)
        self.cluster = ClusterPort(self.replication)  # type: ignore[arg-type]
        self.cluster.subscribe(self._changed)
        self.stale = True  # the handover manager has no view of the newest changes

    def _changed(self) -> None:
        self.stale = True

    # ---- time, and what workers say

    def take_view(self) -> None:
        self.stale = False
        self.feed(ev.ClusterSeen(self.cluster.view(asked_at=self.manager.now)))

    def pass_time(self) -> None:
        self.manager.now += STEP_S
        self.play.now = self.manager.now
        for name in sorted(self.alive):
            incarnation = worker(name).incarnation
            self.replication.handle(replication.Beat(name, incarnation, 0, 10**9, 0, 0, tuple(self.reports(name))))
        self.replication.handle(replication.Tick())
        deadline = self.play.core.next_deadline()
        if self.stale or (deadline is not None and deadline <= self.manager.now):
            self.take_view()

    def reports(self, name: str) -> list[Report]:
        return [self.report(name, group) for group in sorted(self.manager.machine.groups)]

    def report(self, name: str, group_id: GroupId) -> Report:
        group = self.manager.machine.groups[group_id]
        held = self.held[name, group_id]
        member = group.member(name) is not None
        mine = [v for v in held if self.written.get((group_id, v)) == name]
        store = StoreId(*group_id, "default")
        wrote = (StoreVersion(store, Version(max(mine), f"id-{max(mine)}")),) if mine else ()
        whole = member and self.lacks(name, group_id) == set()
        return Report(group_id, group.epoch, whole, len(held), newest_written=wrote, stored_files=len(held))

    def lacks(self, name: str, group_id: GroupId) -> set[int]:
        """The versions that live members have and this one lacks."""
        members = {m.worker.worker_id for m in self.manager.machine.groups[group_id].members}
        there = set[int]().union(*(self.held[member, group_id] for member in members & self.alive))
        return there - self.held[name, group_id]

    def catch_up(self, chance: float = 0.5) -> None:
        for group_id, group in sorted(self.manager.machine.groups.items()):
            for member in group.members:
                name = member.worker.worker_id
                if name in self.alive and self.random.random() < chance:
                    self.held[name, group_id] |= self.lacks(name, group_id)

    # ---- workers

    def add_worker(self) -> None:
        self.names += 1
        self.register(f"w{self.names}")

    def register(self, name: str) -> None:
        self.alive.add(name)
        self.away.discard(name)
        reports = tuple(r for r in self.reports(name) if r.stored_files)
        self.replication.handle(replication.Registered(worker(name), f"{name}-{self.manager.now}", NO_EPOCH, reports))

    def lose_worker(self) -> None:
        if not self.away and len(self.alive) > 3:
            name = self.random.choice(sorted(self.alive))
            self.alive.discard(name)
            self.away.add(name)
            self.replication.handle(replication.StreamBroken(name, self.process(name)))

    def process(self, name: str) -> str:
        return self.manager.machine.membership.records[name].process_id

    def drain(self) -> None:
        name = self.random.choice(sorted(self.alive))
        self.take_view()
        if self.manager.machine.draining:
            self.cluster.set_draining(self.random.choice(sorted(self.manager.machine.draining)), False)
            return
        try:
            drain = Drain(name)
            request = Request("", intent=drain, deadline_s=20.0)
            self.play.core.check_drain(request, drain, now=self.play.now)
            self.cluster.set_draining(name, True)
            self.take_view()
            self.hand_over(request)
        except RhinoError:
            return

    def remove_if_safe(self) -> None:
        self.take_view()
        for name in sorted(self.alive.intersection(self.manager.machine.draining)):
            if self.play.core.drain_state(name, self.cluster.remains(name), now=self.play.now).safe_to_remove:
                self.remove(name)

    def remove(self, name: str) -> None:
        """Its disk goes with it: every version that it has of what a query may load must be whole on others."""
        for group_id, group in self.manager.machine.groups.items():
            if group.member(name) is None and not self.held[name, group_id]:
                continue  # such a group may lack copies for other reasons
            others = [m.worker.worker_id for m in group.members if m.whole and m.worker.worker_id != name]
            holders = [w for w in others if w in self.alive and self.logged in self.held[w, group_id]]
            assert len(holders) > 1, f"{name} was safe to remove: {group_id} version {self.logged} is on {holders}"
        self.removals += 1
        self.alive.discard(name)
        for group_id in self.manager.machine.groups:
            self.held.pop((name, group_id), None)
        self.replication.handle(replication.Leaving(name, self.process(name)))
        self.cluster.forget_worker(name, dry_run=False)
        self.add_worker()

    def drop_excess(self) -> None:
        """As sidecars do: copies that enough members have."""
        for group_id, group in self.manager.machine.groups.items():
            members = {m.worker.worker_id for m in group.members}
            whole = [m.worker.worker_id for m in group.members if m.whole and m.worker.worker_id in self.alive]
            for name in self.alive - members:
                if len(whole) > 1 and all(self.held[name, group_id] <= self.held[w, group_id] for w in whole):
                    self.held.pop((name, group_id), None)

    # ---- the driver

    def connect(self) -> None:
        """A new run in a new session; the newest batch is reported once more."""
        self.runs += 1
        self.introduce()

    def introduce(self) -> None:
        self.sessions += 1
        self.session, self.map, self.batch = self.sessions, None, None
        run = f"run-{self.runs}"
        started = ev.QueryStarted(self.session, "app", JOB, run, "q", GROUPS, host="h", location=LOCATION)
        self.feed(started)
        if self.logged:
            self.report_batch(repeated=True)

    def disconnect(self) -> None:
        """The driver is killed, or ends its query."""
        if self.session is not None:
            if self.random.random() < 0.3:
                self.feed(ev.QueryEnded(self.session, JOB, f"run-{self.runs}"))
            self.feed(ev.SessionClosed(self.session))
            self.session = self.batch = None

    def intrude(self) -> None:
        """A second driver on a copy, or on the same folder while the first one runs, and its floors."""
        if self.session is None:
            return
        self.sessions += 1
        copy = self.random.random() < 0.5
        location = "file:/ckpt/copy" if copy else LOCATION
        self.feed(ev.QueryStarted(self.sessions, "app", JOB, "copy", "q", GROUPS, host="h", location=location))
        self.feed(ev.BatchLogged(self.sessions, JOB, "copy", 998, versions_of(999), floors=versions_of(900)))
        assert self.refused.pop().run_id == "copy"
        self.feed(ev.SessionClosed(self.sessions))

    def begin_batch(self) -> None:
        if self.session is not None and self.batch is None:
            self.batch = {node: self.place(node) for node in NODES}

    def place(self, node: VirtualNode) -> str:
        """By the map, as long as a worker is live there. Sometimes elsewhere, because no slot was free."""
        locations = self.map.locations if self.map else ()
        workers = next((found.workers for found in locations if found.partition == node.partition), ())
        wanted = [name for name in workers if name in self.alive]
        free = self.random.random() < 0.95
        return wanted[0] if wanted and free else self.random.choice(sorted(self.alive))

    def end_batch(self) -> None:
        if self.batch is None or self.session is None:
            return
        batch = {node: name if name in self.alive else self.place(node) for node, name in self.batch.items()}
        for node, name in batch.items():
            for group_id in groups_of(node, OPERATORS):
                if not self.commit(name, group_id):
                    self.batch = batch  # tasks are tried again
                    return
        self.batch = None
        self.logged += 1
        self.report_batch()

    def commit(self, name: str, group_id: GroupId) -> bool:
        """Loads the newest logged version and writes the next; False: to be tried again."""
        if group_id not in self.manager.machine.groups:
            try:
                self.replication.handle(replication.Resolve(group_id, name, JobSettings()))
            except RhinoError:
                return False
        if self.logged and self.logged not in self.held[name, group_id]:
            holders = {w for w in self.alive | self.away if self.logged in self.held[w, group_id]}
            assert holders, f"lost: nobody holds version {self.logged} of {group_id}"
            if not holders & self.alive:
                return False
            self.held[name, group_id].add(self.logged)
        group, version = self.manager.machine.groups[group_id], self.logged + 1
        whole = [m.worker.worker_id for m in group.members if m.whole and m.worker.worker_id in self.alive]
        if len(whole) < group.required_copies:
            return False
        pushed = {m.worker.worker_id for m in group.members if m.worker.worker_id in self.alive}
        for receiver in sorted({name, *whole} | {w for w in sorted(pushed) if self.random.random() < 0.7}):
            self.held[receiver, group_id].add(version)
        self.written[group_id, version] = name
        return True

    def report_batch(self, *, repeated: bool = False) -> None:
        assert self.session is not None
        floor = versions_of(max(self.logged - 3, 1))
        versions = versions_of(self.logged)
        run = f"run-{self.runs}"
        work = {} if repeated else {node: Work(None, self.loads.uniform(0.1, 2.0)) for node in NODES}
        batch = ev.BatchLogged(self.session, JOB, run, self.logged - 1, versions, work, repeated=repeated, floors=floor)
        self.feed(batch)

    def idle(self) -> None:
        """Said when no batch runs, and executors live on all desired workers."""
        if self.session is None or self.batch is not None or self.map is None or not self.logged:
            return
        if all(loc.workers[0] in self.alive for loc in self.map.locations):
            self.feed(ev.QueryIdle(self.session, JOB, f"run-{self.runs}", self.map.configuration_epoch))

    # ---- handovers

    def hand_over(self, request: Request) -> None:
        self.handovers += 1
        self.feed(ev.HandoverRequested(f"h{self.handovers}", request))

    def hand_over_some(self) -> None:
        chosen = tuple(n.name for n in self.random.sample(NODES, self.random.randint(1, PARTITIONS)))
        kind = self.random.choice([Kind.ALL_AT_ONCE, Kind.FLUID])
        gap = self.random.choice([0, 0, 2])
        target, deadline_s = self.random.choice(sorted(self.alive)), self.random.choice([2.0, 20.0])
        strategy = Strategy(kind, gap_batches=gap)
        try:
            self.hand_over(Request(JOB, chosen, target, deadline_s, strategy=strategy))
        except RhinoError:
            return

    def cancel(self) -> None:
        for handover in self.play.core.handovers.active()[:1]:
            try:
                self.feed(ev.CancelRequested(handover.handover_id))
            except RhinoError:
                return

    def restart_manager(self) -> None:
        """Everything but the journals is gone; workers and the driver introduce themselves again."""
        self.manager.restart()
        self._join()
        self.answers, self.changes = [], []
        self.play = Play(Cluster(), self.play.journal, self.manager.now)
        self.take(self.play.effects)
        for name in sorted(self.alive):
            self.register(name)
        if self.session is not None:
            self.introduce()

    # ---- effects

    def feed(self, event: ev.Event) -> None:
        """As the runtime does: a view is due after each event, except for those whose next view is a deadline."""
        refused = isinstance(event, ev.GroupChanged) and event.error is not None
        if not (refused or isinstance(event, ev.ClusterSeen)):
            self.stale = True
        self.take(self.play(event))
        self.check()

    def take(self, effects: list[ev.Effect]) -> None:
        for effect in effects:
            match effect:
                case ev.PushLocations(session) if session == self.session:
                    self.map = effect
                case ev.FindWriters():
                    self.answers.append(effect)
                case ev.ChangeGroup():
                    self.changes.append(effect)
                case ev.Announce():
                    self.cluster.name_targets(self.play.core.handovers.targets())
                case ev.PublishLogged():
                    self.cluster.publish(effect)
                case ev.RefuseQuery():
                    self.refused.append(effect)
                case ev.ProbeSession(session):
                    assert session == self.session
                    self.feed(ev.SessionAnswered(session))

    def answer(self) -> None:
        """Calls to others come back in any order; some sidecars are silent."""
        if self.changes:
            effect, error = self.changes.pop(self.random.randrange(len(self.changes))), None
            try:
                self.cluster.change_group(effect)
            except RhinoError as refusal:
                error = refusal
            self.feed(ev.GroupChanged(effect.handover_id, effect.group, error))
        if self.answers:
            asked = self.answers.pop(self.random.randrange(len(self.answers)))
            said = {v: self.written[v.store.group, v.version.version] for v, _ in asked.versions}
            heard = {v: w for v, w in said.items() if w in self.alive}
            self.feed(ev.WritersFound(asked.job, asked.batch_id, heard))

    # ---- checks

    def check(self) -> None:
        for handover in self.play.core.handovers.all():
            for number, step in enumerate(handover.steps):
                self._check_step(handover, number, step)
        newest = self.manager.machine.logged.floors.values()
        assert all(floor.version <= max(self.logged, 1) for floor in newest), "a floor of a run that does not count"

    def _check_step(self, handover: DrivenHandover, number: int, step: DrivenStep) -> None:
        key = (handover.handover_id, number)
        if step.marker is not None:
            self.marked.setdefault(key, self.logged)
        if step.phase is not Phase.CONFIRMED or key in self.confirmed:
            return
        self.confirmed.add(key)
        if "is idle" in step.reason:
            return
        since = range(self.marked[key] + 1, self.logged + 1)
        for move in step.moves:
            where = [{self.written[group, version] for group in move.groups()} for version in since]
            assert {move.target} in where, f"{key}: {move.node.name} was written by {where}, not {move.target}"

    def check_map(self) -> None:
        """Each virtual node has one desired location. A view that may skip maps skips none that would have changed."""
        self.take_view()
        job = self.play.core.jobs[JOB]
        known = {node for node in NODES if self.play.core.view.known(groups_of(node, OPERATORS))}
        assert known <= set(job.map.desired) <= set(NODES)
        self.play(ev.ClusterSeen(dataclasses.replace(self.play.core.view, revisions=None)))
        left_out = [e for e in self.play.effects if isinstance(e, ev.PushLocations)]
        assert not left_out, "a map was not made again"
        if self.session is not None and self.map is not None:
            assert self.map.configuration_epoch == job.map.configuration_epoch
            first = {loc.partition: loc.workers[0] for loc in self.map.locations}
            assert first == {n.partition: w for n, w in job.map.desired.items()}
