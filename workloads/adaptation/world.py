"""A simulated cluster whose manager adapts: loads as functions of time, batches, and handovers that succeed."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from handover_manager import events as ev
from handover_manager.adapt.policy import Mode, Policy
from handover_manager.adapt.windows import imbalance
from handover_manager.plan.work import Work
from handover_manager.view import TaskGroup
from rhino_core.ids import GroupId, StoreId, StoreVersion, Version, VirtualNode
from rhino_model.decisions import Decision, Outcome
from rhino_model.loads import SourceLag
from workloads.adaptation.scene import JOB, RUN, Cluster, Play, group

ACT = Policy(mode=Mode.ACT)
INTERVAL_S = 5.0  # from batch to batch
DISK_BYTES = 1 << 40
STATE_BYTES = 100  # of a partition
ZONES = 3  # of a world whose workers are in zones; worker n is in zone n modulo 3
Load = Callable[[int, float], float]  # seconds of the task of a partition at a time


class Moved(NamedTuple):
    """A move that adaptation has begun. `back`: it takes a plan back."""

    at: float
    node: VirtualNode
    origin: str
    target: str
    back: bool


@dataclass
class World:
    """`slow`: factor on the task times of a worker. `rows`: input rows of a batch at a time.

    `zoned`: copies are kept in different zones, so that a zone may be lost. `trigger_s`: the trigger interval in
    seconds; 0: none. `usual`: `load` without noise; None: it has none. `lags`: what the sources report at a time.
    """

    workers: int
    partitions: int
    load: Load
    policy: Policy = ACT
    slow: Callable[[str, float], float] = lambda worker, at: 1.0
    rows: Callable[[float], int] = lambda at: 1000
    run_id: str = RUN
    zoned: bool = False
    trigger_s: float = 0.0
    usual: Load | None = None
    lags: Callable[[float], tuple[SourceLag, ...]] = lambda at: ()

    def __post_init__(self) -> None:
        names = [f"w{n}" for n in range(self.workers)]
        self.cluster = Cluster(*names)
        for name in names:
            self.cluster.worker(name, free_bytes=DISK_BYTES)
        for partition in range(self.partitions):
            owner, copy = names[partition % self.workers], names[(partition + 1) % self.workers]
            self._chain(group(0, partition), [owner, copy])
        self.play = Play(self.cluster, now=0.0, policy=self.policy)
        self.batches = 0
        self.moved: list[Moved] = []
        self.worked: list[tuple[float, dict[int, float]]] = []  # time, and seconds of the task of each partition
        self.begin()

    def begin(self) -> None:
        """The driver reports the query."""
        self.play.begin(TaskGroup(0, (0,), self.partitions), run_id=self.run_id)
        self._carry_out(self.play.effects)
        self.see()

    def restart_manager(self) -> None:
        self.play = self.play.restart()
        self.begin()

    def see(self) -> None:
        self._carry_out(self.play.see())

    @property
    def live(self) -> list[str]:
        return [name for name, seen in self.cluster.workers.items() if seen.live]

    def lose_zone(self, zone: int) -> None:
        """All workers of the zone are lost. The copies elsewhere own their groups, which lack a copy from now on."""
        lost = {name for name in self.cluster.workers if _zone(name) == zone}
        for name in lost:
            self.cluster.lose(name)
        for group_id, seen in list(self.cluster.groups.items()):
            names = [member.worker.worker_id for member in seen.group.members]
            self._chain(group_id, [name for name in names if name not in lost])
        self.see()

    def replace_copies(self) -> None:
        """Groups that lack a copy get one on the worker with the fewest."""
        held = Counter(
            member.worker.worker_id for seen in self.cluster.groups.values() for member in seen.group.members
        )
        for group_id, seen in list(self.cluster.groups.items()):
            names = [member.worker.worker_id for member in seen.group.members]
            if len(names) <= seen.group.settings.replication_factor:
                names.append(min(set(self.live) - set(names), key=lambda name: (held[name], name)))
                held[names[-1]] += 1
                self._chain(group_id, names)
        self.see()

    def _chain(self, group_id: GroupId, names: Iterable[str]) -> None:
        """These workers have whole copies, the owner first."""
        members = list(dict.fromkeys(names))
        self.cluster.chain(group_id, " ".join(members), dict.fromkeys(members, STATE_BYTES))

    @property
    def desired(self) -> dict[int, str]:
        return {node.partition: worker for node, worker in self.play.core.jobs[JOB].map.desired.items()}

    def loads(self) -> dict[str, float]:
        """Seconds of tasks on each worker now."""
        found = dict.fromkeys(self.live, 0.0)
        for partition, worker in self.desired.items():
            found[worker] += self.task_s(partition, worker)
        return found

    @property
    def imbalance(self) -> float:
        return imbalance(self.loads())

    def balance(self, desired: Mapping[int, str] | None = None) -> float:
        """The imbalance of task time, without noise. `desired`: the workers of partitions; None: as they are."""
        loads = dict.fromkeys(self.live, 0.0)
        for partition, worker in (self.desired if desired is None else desired).items():
            loads[worker] = loads.get(worker, 0.0) + self.usual_s(partition, worker)
        return imbalance(loads)

    def usual_s(self, partition: int, worker: str) -> float:
        """Seconds of the task of a partition on a worker now, without noise."""
        return (self.usual or self.load)(partition, self.play.now) * self.slow(worker, self.play.now)

    def task_s(self, partition: int, worker: str) -> float:
        return self.load(partition, self.play.now) * self.slow(worker, self.play.now)

    def run(self, batches: int) -> None:
        for _ in range(batches):
            self.batch()

    def batch(self) -> None:
        """Logs a batch that ran where it was desired."""
        play = self.play
        play.now += INTERVAL_S
        writers = {group(0, partition): worker for partition, worker in self.desired.items()}
        versions = {
            StoreVersion(StoreId(*key, "default"), Version(self.batches + 1, f"{worker}-{self.batches}")): worker
            for key, worker in writers.items()
        }
        tasks_s = {partition: self.task_s(partition, worker) for partition, worker in self.desired.items()}
        self.worked.append((play.now, tasks_s))
        work = {VirtualNode(JOB, 0, p): Work(None, seconds) for p, seconds in tasks_s.items()}
        logged = ev.BatchLogged(play.session(), JOB, self.run_id, self.batches, tuple(versions), work)
        loads = self.loads()
        logged = dataclasses.replace(logged, rows=self.rows(play.now), batch_s=max(loads.values()))
        logged = dataclasses.replace(logged, trigger_s=self.trigger_s, lags=self.lags(play.now))
        self._carry_out(play(logged))
        self._carry_out(play(ev.WritersFound(JOB, self.batches, versions)))
        self.batches += 1
        self.see()

    def decisions(self, *outcomes: Outcome) -> list[Decision]:
        found = self.play.core.adaptation.decisions.all()
        return [one for one in found if not outcomes or one.outcome in outcomes]

    def _carry_out(self, effects: list[ev.Effect]) -> None:
        """Changes groups as asked, and collects the moves of adaptation."""
        self._collect(effects)
        for effect in effects:
            if isinstance(effect, ev.ChangeGroup):
                self._change(effect)
                self._carry_out(self.play(ev.GroupChanged(effect.handover_id, effect.group, None)))
                self._carry_out(self.play.see())

    def _collect(self, effects: list[ev.Effect]) -> None:
        for decision in _persisted(effects):
            if decision.outcome in (Outcome.MOVING, Outcome.RETURNING) and decision.times == 1:
                self._begun(decision)

    def _begun(self, decision: Decision) -> None:
        back = decision.outcome is Outcome.RETURNING
        moves = [(VirtualNode(JOB, *map(int, m.virtual_node.split("/"))), m.origin, m.target) for m in decision.moves]
        self.moved += [Moved(self.play.now, *move, back) for move in moves]

    def _change(self, effect: ev.ChangeGroup) -> None:
        seen = self.cluster.groups[effect.group]
        names = [member.worker.worker_id for member in seen.group.members]
        if effect.add_member:
            names.append(effect.add_member)
        else:
            others = [name for name in names if name != effect.make_owner]
            if self.zoned:
                others.sort(key=lambda name: _zone(name) == _zone(effect.make_owner))
            names = [effect.make_owner, *others][: seen.group.settings.replication_factor + 1]
        self._chain(effect.group, names)


def _zone(worker: str) -> int:
    return int(worker.removeprefix("w")) % ZONES


def _persisted(effects: list[ev.Effect]) -> Iterator[Decision]:
    for effect in effects:
        if isinstance(effect, ev.Persist) and isinstance(effect.record, Decision):
            yield effect.record
