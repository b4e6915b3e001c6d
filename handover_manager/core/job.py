"""What the handover manager keeps of one streaming query."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from handover_manager.core.figures import Figures
from handover_manager.core.heirs import Heirs
from handover_manager.core.locations import Location, choose_worker, make_locations, rank_workers, virtual_nodes
from handover_manager.core.view import ClusterView, TaskGroup, groups_of
from handover_manager.core.work import WorkFigures
from rhino.ids import StoreVersion, VirtualNode

PENDING_BATCHES_MAX = 64  # batches whose writers are being asked for


@dataclass(frozen=True, slots=True)
class LoggedBatch:
    """A batch whose writers are not yet known, and what held when it was logged."""

    order: int  # counts the batches reported to this manager: answers may overtake each other
    configuration_epoch: int
    versions: tuple[StoreVersion, ...]
    meant: Mapping[VirtualNode, frozenset[str]]  # desired since the batch before: either side of a marker is right


@dataclass(slots=True)
class Job:
    """A streaming query: its map of desired workers, and where its logged batches really ran."""

    job: str
    run_id: str = ""
    name: str = ""
    application_id: str = ""
    task_groups: tuple[TaskGroup, ...] = ()
    session: int | None = None  # of the driver that runs it now
    lost_at: float | None = None  # when the session of its driver broke, without the end of the query
    batch_id: int = -1
    configuration_epoch: int = 0
    desired: dict[VirtualNode, str] = field(default_factory=dict)
    pinned: dict[VirtualNode, str] = field(default_factory=dict)  # set by a marker, until the target owns the groups
    actual: dict[VirtualNode, str] = field(default_factory=dict)
    misses: dict[VirtualNode, int] = field(default_factory=dict)
    pending: dict[int, LoggedBatch] = field(default_factory=dict)
    reported: int = 0  # batches reported to this manager
    settled: dict[VirtualNode, int] = field(default_factory=dict)  # order of the batch that `actual` is of
    desired_before: dict[VirtualNode, str] = field(default_factory=dict)  # when the newest batch was logged
    pushed: tuple[int, tuple[Location, ...]] | None = None  # (configuration epoch, map) that the session has
    figures: Figures = field(default_factory=Figures)
    logged_at: float | None = None  # monotonic time of the newest report of a batch
    logged_run: str = ""  # that it was of
    slowest: dict[str, float] = field(default_factory=dict)  # interval of batches, under each marker that is watched
    work: WorkFigures = field(default_factory=WorkFigures)
    heirs: Heirs = field(default_factory=Heirs)
    missed: frozenset[VirtualNode] = frozenset()  # ran elsewhere than desired in the newest settled batch
    idle_epoch: int = -1  # no batch runs, nor will one begin under an older map; -1: not known

    @property
    def idle(self) -> bool:
        """The next batch goes by the present map, and none runs."""
        return self.idle_epoch == self.configuration_epoch

    @property
    def nodes(self) -> dict[VirtualNode, tuple[int, ...]]:
        """Virtual nodes with their operators."""
        return virtual_nodes(self.job, self.task_groups)

    def node_of(self) -> dict[tuple[int, int], VirtualNode]:
        """Virtual node of an (operator, partition)."""
        return {(o, node.partition): node for node, operators in self.nodes.items() for o in operators}

    def choose(self, view: ClusterView) -> bool:
        """Takes desired workers from `view`; True, and a new configuration epoch, when the map has changed.

        A virtual node keeps its worker while its groups are unknown.
        """
        chosen = dict(self.desired)
        for node, operators in self.nodes.items():
            standing = self.pinned.get(node) or self.heirs.of(node, groups_of(node, operators), view)
            worker = choose_worker(view, node, operators, standing)
            if worker is not None:
                chosen[node] = worker
        if chosen == self.desired:
            return False
        self.desired = chosen
        self.configuration_epoch += 1
        return True

    def locations(self, view: ClusterView) -> tuple[Location, ...]:
        nodes = self.nodes
        ranked = rank_workers(view, nodes, {n: w for n, w in self.desired.items() if n in nodes})
        self.heirs.note(ranked, self.pinned)
        return make_locations(view, ranked)

    def logged(self, batch_id: int, versions: tuple[StoreVersion, ...], now: float) -> None:
        """Notes a logged batch."""
        self._time(batch_id, now)
        meant = {n: frozenset({w, self.desired_before.get(n, w)}) for n, w in self.desired.items()}
        self.idle_epoch = -1
        self.desired_before = dict(self.desired)
        self._ask(batch_id, self.configuration_epoch, versions, meant)

    def repeated(self, batch_id: int, versions: tuple[StoreVersion, ...]) -> None:
        """Notes a batch that may have begun under any map: it tells where state is, confirms nothing, is no miss."""
        self._ask(batch_id, 0, versions, {})

    def _ask(
        self,
        batch_id: int,
        configuration_epoch: int,
        versions: tuple[StoreVersion, ...],
        meant: Mapping[VirtualNode, frozenset[str]],
    ) -> None:
        """The oldest batches without an answer are given up beyond PENDING_BATCHES_MAX."""
        self.batch_id = batch_id
        self.reported += 1
        self.pending[batch_id] = LoggedBatch(self.reported, configuration_epoch, versions, meant)
        while len(self.pending) > PENDING_BATCHES_MAX:
            del self.pending[min(self.pending)]

    def _time(self, batch_id: int, now: float) -> None:
        """Takes the interval to the batch before in its run; that of a batch under a marker is not what is usual."""
        if self.logged_at is not None and (self.logged_run, batch_id) == (self.run_id, self.batch_id + 1):
            interval_s = now - self.logged_at
            if not self.slowest:
                self.figures.intervals_s.append(interval_s)
            self.slowest = {name: max(seen_s, interval_s) for name, seen_s in self.slowest.items()}
        self.logged_at, self.logged_run = now, self.run_id

    def pause(self, name: str) -> float | None:
        """By how much the slowest batch since `slowest[name]` was set is longer than usual; ends that watch."""
        slowest_s, usual_s = self.slowest.pop(name, 0.0), self.figures.batch_s
        return None if usual_s is None or not slowest_s else max(slowest_s - usual_s, 0.0)

    def settle(self, batch: LoggedBatch, writers: Mapping[StoreVersion, str]) -> dict[VirtualNode, str]:
        """Actual workers of a logged batch: virtual nodes whose stores were all written by one worker.

        Counts a miss for each one that ran elsewhere than desired.
        """
        node_of, found = self.node_of(), dict[VirtualNode, set[str]]()
        for version in batch.versions:
            node = node_of.get((version.store.operator, version.store.partition))
            if node is not None:
                found.setdefault(node, set()).add(writers.get(version, ""))
        actual = {node: next(iter(who)) for node, who in found.items() if len(who) == 1 and "" not in who}
        missed = frozenset(node for node, worker in actual.items() if worker not in batch.meant.get(node, {worker}))
        for node in missed:
            self.misses[node] = self.misses.get(node, 0) + 1
        if batch.order > max(self.settled.values(), default=0):
            self.missed = missed
        for node, worker in actual.items():
            if batch.order > self.settled.get(node, 0):
                self.settled[node], self.actual[node] = batch.order, worker
        return actual
