"""The logged batches of a query: the actual workers of its virtual nodes, and the times of the batches."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from rhino_core.ids import StoreVersion, VirtualNode

PENDING_BATCHES_MAX = 64  # batches whose writers are still unknown


@dataclass(frozen=True, slots=True)
class LoggedBatch:
    """A batch with writers not known yet, and the state of the map when it was logged.

    `order` counts the batches reported to this manager, because answers may overtake each other. `meant` has the
    workers desired since the batch before: both sides of a marker are right.
    """

    order: int
    configuration_epoch: int
    versions: tuple[StoreVersion, ...]
    meant: Mapping[VirtualNode, frozenset[str]]

    def written_by_one(
        self, writers: Mapping[StoreVersion, str], node_of: Mapping[tuple[int, int], VirtualNode]
    ) -> dict[VirtualNode, str]:
        """The actual workers of the batch: virtual nodes with all stores written by one worker."""
        found = dict[VirtualNode, set[str]]()
        for version in self.versions:
            node = node_of.get((version.store.operator, version.store.partition))
            if node is not None:
                found.setdefault(node, set()).add(writers.get(version, ""))
        return {node: next(iter(who)) for node, who in found.items() if len(who) == 1 and "" not in who}


@dataclass(slots=True)
class LoggedBatches:
    """Batches that wait for their writers, and the outcome of the others. Not journalled.

    `newest_id` is the id of the newest reported batch, `reported` counts the reports. `actual` has the worker of each
    virtual node, in the batch of the order `settled`. `misses` counts the runs of a virtual node elsewhere than
    desired; `missed` has the ones of the newest settled batch. `desired` is the map as it was when the newest batch was
    logged.
    """

    newest_id: int | None = None
    reported: int = 0
    pending: dict[int, LoggedBatch] = field(default_factory=dict)
    actual: dict[VirtualNode, str] = field(default_factory=dict)
    settled: dict[VirtualNode, int] = field(default_factory=dict)
    misses: dict[VirtualNode, int] = field(default_factory=dict)
    missed: frozenset[VirtualNode] = frozenset()
    desired: dict[VirtualNode, str] = field(default_factory=dict)

    def logged(
        self,
        batch_id: int,
        versions: tuple[StoreVersion, ...],
        configuration_epoch: int,
        desired: Mapping[VirtualNode, str],
    ) -> None:
        """Adds a batch logged under this map."""
        meant = {node: frozenset({worker, self.desired.get(node, worker)}) for node, worker in desired.items()}
        self.desired = dict(desired)
        self._add(batch_id, configuration_epoch, versions, meant)

    def repeated(self, batch_id: int, versions: tuple[StoreVersion, ...]) -> None:
        """Adds a repeated batch. It may have begun under any map.

        It shows the place of state. It confirms no marker, and it is never a miss.
        """
        self._add(batch_id, 0, versions, {})

    def _add(
        self,
        batch_id: int,
        configuration_epoch: int,
        versions: tuple[StoreVersion, ...],
        meant: Mapping[VirtualNode, frozenset[str]],
    ) -> None:
        """Beyond PENDING_BATCHES_MAX the oldest batches are dropped."""
        self.newest_id = batch_id
        self.reported += 1
        self.pending[batch_id] = LoggedBatch(self.reported, configuration_epoch, versions, meant)
        while len(self.pending) > PENDING_BATCHES_MAX:
            del self.pending[min(self.pending)]

    def settle(self, batch: LoggedBatch, actual: Mapping[VirtualNode, str]) -> frozenset[VirtualNode]:
        """Records the actual workers of a batch.

        Counts and returns the misses: runs of virtual nodes elsewhere than desired.
        """
        missed = frozenset(node for node, worker in actual.items() if worker not in batch.meant.get(node, {worker}))
        for node in missed:
            self.misses[node] = self.misses.get(node, 0) + 1
        if batch.order > max(self.settled.values(), default=0):
            self.missed = missed
        for node, worker in actual.items():
            if batch.order > self.settled.get(node, 0):
                self.settled[node], self.actual[node] = batch.order, worker
        return missed

    def keep(self, nodes: Collection[VirtualNode]) -> None:
        """Drops the knowledge of other virtual nodes, because nothing runs them any more."""
        for table in (self.actual, self.misses, self.settled, self.desired):
            for node in [node for node in table if node not in nodes]:
                del table[node]
        self.missed = frozenset(node for node in self.missed if node in nodes)


@dataclass(slots=True)
class BatchTimes:
    """Measures the intervals of batches. Times are monotonic, intervals in seconds.

    `logged_at` and `run_id` belong to the newest report of a batch, repeated ones excluded. `slowest` has the longest
    interval under each watched marker.
    """

    logged_at: float | None = None
    run_id: str = ""
    slowest: dict[str, float] = field(default_factory=dict)

    def logged(self, run_id: str, batch_id: int, former_id: int | None, now: float) -> float | None:
        """Records a batch. Returns the interval since the batch before, if it is a usual one.

        None if `former_id` is not the batch before, and under a watched marker.
        """
        usual_s = None
        if self.logged_at is not None and former_id is not None and (self.run_id, former_id + 1) == (run_id, batch_id):
            interval_s = now - self.logged_at
            usual_s = None if self.slowest else interval_s
            self.slowest = {marker: max(seen_s, interval_s) for marker, seen_s in self.slowest.items()}
        self.logged_at, self.run_id = now, run_id
        return usual_s

    def watch(self, marker: str) -> None:
        self.slowest[marker] = 0.0

    def unwatch(self, marker: str) -> None:
        self.slowest.pop(marker, None)

    def pause(self, marker: str, usual_s: float | None) -> float | None:
        """Ends the watch of a marker, and returns its pause.

        The pause is the excess of the slowest batch over the usual time, in seconds. None: unknown.
        """
        slowest_s = self.slowest.pop(marker, 0.0)
        return None if usual_s is None or not slowest_s else max(slowest_s - usual_s, 0.0)
