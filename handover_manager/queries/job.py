"""What the handover manager knows of one streaming query."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from handover_manager.plan.locations import LocationMap, Split, choose_worker, make_locations, rank_workers
from handover_manager.plan.measurements import Figures
from handover_manager.plan.work import WorkFigures
from handover_manager.queries.fallbacks import Fallbacks
from handover_manager.view import ClusterView, TaskGroup, groups_of
from rhino_core.ids import StoreVersion, VirtualNode

PENDING_BATCHES_MAX = 64  # batches whose writers are still unknown


@dataclass(frozen=True, slots=True)
class LoggedBatch:
    """A batch whose writers are not known yet, and the state of the map when it was logged."""

    order: int  # counts the batches reported to this manager, because answers may overtake each other
    configuration_epoch: int
    versions: tuple[StoreVersion, ...]
    # workers desired since the previous batch: both sides of a marker are right
    meant: Mapping[VirtualNode, frozenset[str]]


@dataclass(slots=True)
class Job:
    """A streaming query: its map of desired workers, and the workers that really ran its logged batches."""

    job: str
    run_id: str = ""
    name: str = ""
    application_id: str = ""
    host: str = ""  # of the driver
    since_ms: int = 0  # wall clock when the run was accepted
    location: str = ""  # of the query checkpoint, in canonical spelling; empty: not reported yet
    task_groups: tuple[TaskGroup, ...] = ()
    session: int | None = None  # of the driver that runs it now
    lost_at: float | None = None  # when its driver's session broke before the query had ended
    batch_id: int | None = None  # of the newest reported batch
    configuration_epoch: int = 0
    desired: dict[VirtualNode, str] = field(default_factory=dict)
    pinned: dict[VirtualNode, str] = field(default_factory=dict)  # set by a marker, until the target owns the groups
    actual: dict[VirtualNode, str] = field(default_factory=dict)
    misses: dict[VirtualNode, int] = field(default_factory=dict)
    pending: dict[int, LoggedBatch] = field(default_factory=dict)
    reported: int = 0  # batches reported to this manager
    settled: dict[VirtualNode, int] = field(default_factory=dict)  # order of the batch that `actual` comes from
    desired_before: dict[VirtualNode, str] = field(default_factory=dict)  # as it was when the newest batch was logged
    pushed: tuple[int, LocationMap] | None = None  # (configuration epoch, map) that the session has
    figures: Figures = field(default_factory=Figures)
    logged_at: float | None = None  # monotonic time of the newest report of a batch
    logged_run: str = ""  # the run of that batch
    slowest: dict[str, float] = field(default_factory=dict)  # longest interval of batches under each watched marker
    work: WorkFigures = field(default_factory=WorkFigures)
    fallbacks: Fallbacks = field(default_factory=Fallbacks)
    missed: frozenset[VirtualNode] = frozenset()  # ran elsewhere than desired in the newest settled batch
    idle_epoch: int | None = None  # no batch runs or will begin under an older map; None: unknown
    seen: object = None  # the revision of its groups, and the workers, from which the map was made
    split: Split = field(default_factory=Split)

    @property
    def idle(self) -> bool:
        """Whether no batch runs and the next one will use the present map."""
        return self.idle_epoch == self.configuration_epoch

    @property
    def nodes(self) -> Mapping[VirtualNode, tuple[int, ...]]:
        """Virtual nodes with their operators."""
        return self.split.of(self.job, self.task_groups).nodes

    def node_of(self) -> Mapping[tuple[int, int], VirtualNode]:
        """The virtual node of each (operator, partition)."""
        return self.split.of(self.job, self.task_groups).node_of

    def take_plan(self, task_groups: tuple[TaskGroup, ...]) -> None:
        """Adopts a new plan.

        Drops what is known of virtual nodes that the new plan lacks, because nothing runs them any more.
        """
        self.task_groups = task_groups
        self.work.clear()
        nodes = self.nodes
        for table in (self.pinned, self.actual, self.misses, self.settled, self.desired_before):
            for node in [node for node in table if node not in nodes]:
                del table[node]
        self.missed = frozenset(node for node in self.missed if node in nodes)

    def choose(self, view: ClusterView) -> bool:
        """Updates the map from `view`. Returns whether it has changed, which begins a new configuration epoch.

        A virtual node keeps its worker while its groups are unknown.
        """
        nodes = self.nodes
        chosen = {node: worker for node, worker in self.desired.items() if node in nodes}
        for node, operators in nodes.items():
            standing = self.pinned.get(node) or self.fallbacks.of(node, groups_of(node, operators), view)
            worker = choose_worker(view, node, operators, standing)
            if worker is not None:
                chosen[node] = worker
        if chosen == self.desired:
            return False
        self.desired = chosen
        self.configuration_epoch += 1
        return True

    def locations(self, view: ClusterView) -> LocationMap:
        ranked = rank_workers(view, self.nodes, self.desired)
        self.fallbacks.sent(ranked, self.pinned)
        return make_locations(view, ranked)

    def logged(self, batch_id: int, versions: tuple[StoreVersion, ...], now: float) -> None:
        """Records a logged batch."""
        self._time(batch_id, now)
        meant = {n: frozenset({w, self.desired_before.get(n, w)}) for n, w in self.desired.items()}
        self.idle_epoch = None
        self.desired_before = dict(self.desired)
        self._ask(batch_id, self.configuration_epoch, versions, meant)

    def repeated(self, batch_id: int, versions: tuple[StoreVersion, ...]) -> None:
        """Records a repeated batch, which may have begun under any map.

        It shows where state is. It confirms no marker, and it is never a miss.
        """
        self._ask(batch_id, 0, versions, {})

    def _ask(
        self,
        batch_id: int,
        configuration_epoch: int,
        versions: tuple[StoreVersion, ...],
        meant: Mapping[VirtualNode, frozenset[str]],
    ) -> None:
        """Adds a batch whose writers must be found. Beyond PENDING_BATCHES_MAX the oldest batches are dropped."""
        self.batch_id = batch_id
        self.reported += 1
        self.pending[batch_id] = LoggedBatch(self.reported, configuration_epoch, versions, meant)
        while len(self.pending) > PENDING_BATCHES_MAX:
            del self.pending[min(self.pending)]

    def _time(self, batch_id: int, now: float) -> None:
        """Records the interval since the previous batch of the run, in seconds.

        Intervals under a marker do not count as usual ones.
        """
        former = None if self.batch_id is None else (self.logged_run, self.batch_id + 1)
        if self.logged_at is not None and former == (self.run_id, batch_id):
            interval_s = now - self.logged_at
            if not self.slowest:
                self.figures.intervals_s.append(interval_s)
            self.slowest = {name: max(seen_s, interval_s) for name, seen_s in self.slowest.items()}
        self.logged_at, self.logged_run = now, self.run_id

    def pause(self, name: str) -> float | None:
        """Ends the watch of the marker `name`, and returns its pause.

        The pause is the time by which the slowest batch took longer than usual, in seconds. None: unknown.
        """
        slowest_s, usual_s = self.slowest.pop(name, 0.0), self.figures.batch_s
        return None if usual_s is None or not slowest_s else max(slowest_s - usual_s, 0.0)

    def settle(self, batch: LoggedBatch, writers: Mapping[StoreVersion, str]) -> dict[VirtualNode, str]:
        """The actual workers of a logged batch: virtual nodes whose stores were all written by one worker.

        Counts a miss for each virtual node that ran elsewhere than desired.
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
            if self.fallbacks.ran(node, missed=node in missed):
                self.seen = None  # the map must be made again
            if batch.order > self.settled.get(node, 0):
                self.settled[node], self.actual[node] = batch.order, worker
        return actual
