"""The model of placement: workers and virtual nodes in columns. Events change it; nothing ever rebuilds it."""

from __future__ import annotations

import math
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rhino_core.errors import InvalidRequestError, UnknownError
from rhino_core.ids import VirtualNode
from rhino_core.planning.goals import ORDER, Weight

NOWHERE = -1  # the owner of a virtual node that is on no worker


@dataclass(frozen=True, slots=True)
class Site:
    """A worker and its place in the network. An empty zone or rack is unknown.

    `capacity` is relative to other workers: one of 2 gets twice the load. `room_bytes`: how much state it may receive.
    `stays`: virtual nodes may remain on it. `takes`: it may receive further ones, or copies. A draining worker has
    neither, one with a full disk stays and takes nothing.
    """

    worker_id: str
    host: str = ""
    zone: str = ""
    rack: str = ""
    capacity: float = 1.0
    room_bytes: float = math.inf
    stays: bool = True
    takes: bool = True

    def __post_init__(self) -> None:
        if not math.isfinite(self.capacity) or self.capacity <= 0:
            raise InvalidRequestError(f"capacity {self.capacity} of worker {self.worker_id}: must be above 0")
        if math.isnan(self.room_bytes) or self.room_bytes < 0:
            raise InvalidRequestError(f"room of {self.room_bytes} bytes on worker {self.worker_id}: must be 0 or more")
        if self.takes and not self.stays:
            raise InvalidRequestError(f"worker {self.worker_id} is to take virtual nodes that may not stay: choose one")


@dataclass(frozen=True, slots=True)
class Load:
    """Weights of a virtual node: seconds of its task per batch, rows and bytes of its state. None: not known."""

    time_s: float | None = None
    rows: float | None = None
    bytes: float | None = None

    def of(self, weight: Weight) -> float | None:
        match weight:
            case Weight.TIME:
                return self.time_s
            case Weight.ROWS:
                return self.rows
            case Weight.BYTES:
                return self.bytes
            case Weight.COUNT:
                return 1.0


@dataclass(slots=True)
class Model:
    """Workers and virtual nodes by index. An index is never given to another one. Read the columns, do not change them.

    `copies`: workers with all state of the virtual node. `lacking`: bytes missing on other workers, if they hold a
    part. `totals`: loads of each worker for each weight. `unknown`: virtual nodes without it.
    """

    sites: list[Site | None] = field(default_factory=list)
    worker_index: dict[str, int] = field(default_factory=dict)
    owned: list[set[int]] = field(default_factory=list)
    totals: dict[Weight, list[float]] = field(default_factory=lambda: {weight: [] for weight in ORDER})
    nodes: list[VirtualNode | None] = field(default_factory=list)
    node_index: dict[VirtualNode, int] = field(default_factory=dict)
    owner: array[int] = field(default_factory=lambda: array("i"))
    copies: list[tuple[int, ...]] = field(default_factory=list)
    columns: dict[Weight, array[float]] = field(default_factory=lambda: {weight: array("d") for weight in ORDER})
    lacking: dict[int, dict[int, float]] = field(default_factory=dict)
    unknown: dict[Weight, set[int]] = field(default_factory=lambda: {weight: set() for weight in ORDER})
    homeless: set[int] = field(default_factory=set)  # virtual nodes that are on no worker
    heaviest: dict[Weight, float] = field(default_factory=lambda: dict.fromkeys(ORDER, 0.0))  # or more: never less
    _sets: dict[tuple[int, ...], tuple[int, ...]] = field(default_factory=dict)  # one object for equal sets of copies

    # ------------------------------------------------------------------ workers

    def put_worker(self, site: Site) -> None:
        """Adds a worker, or changes its data."""
        index = self.worker_index.get(site.worker_id)
        if index is not None:
            self.sites[index] = site
            return
        self.worker_index[site.worker_id] = len(self.sites)
        self.sites.append(site)
        self.owned.append(set())
        for loads in self.totals.values():
            loads.append(0.0)

    def remove_worker(self, worker_id: str) -> None:
        """Forgets a lost worker. Its virtual nodes are on no worker then. Its copies count no more."""
        index = self.worker_of(worker_id)
        for node in list(self.owned[index]):
            self._own(node, NOWHERE)
        self.sites[index] = None
        del self.worker_index[worker_id]

    def worker_of(self, worker_id: str) -> int:
        """The index. Raises UnknownError."""
        index = self.worker_index.get(worker_id)
        if index is None:
            known = ", ".join(sorted(self.worker_index)[:20]) or "none"
            raise UnknownError(f"worker {worker_id!r}: unknown; known are {known}")
        return index

    # ------------------------------------------------------------------ virtual nodes

    def put_node(self, node: VirtualNode, owner: str | None, load: Load, copies: tuple[str, ...] = ()) -> None:
        """Adds a virtual node, or replaces all its data. `owner` None: it has no worker yet."""
        workers = tuple(self.worker_of(worker) for worker in copies)
        home = NOWHERE if owner is None else self.worker_of(owner)
        index = self.node_index.get(node)
        if index is None:
            index = self.node_index[node] = len(self.nodes)
            self.nodes.append(node)
            self.owner.append(NOWHERE)
            self.copies.append(())
            for column in self.columns.values():
                column.append(0.0)
            self.homeless.add(index)
        self.copies[index] = self._sets.setdefault(workers, workers)
        self.lacking.pop(index, None)
        for weight in ORDER:
            self._weigh(index, weight, load.of(weight))
        if home != self.owner[index]:
            self._own(index, home)

    def put_nodes(
        self,
        nodes: Sequence[VirtualNode],
        owners: Sequence[str],
        loads: Mapping[Weight, Sequence[float]],
        copies: Sequence[tuple[str, ...]],
    ) -> None:
        """Adds new virtual nodes, as `put_node` for each of them, in a tenth of the time.

        A weight missing in `loads` is unknown for all of them, apart from the count. Raises UnknownError for a worker,
        and InvalidRequestError for a virtual node already there or a weight that is negative or not finite.
        """
        first, count = len(self.nodes), len(nodes)
        if len(set(nodes)) < count or not self.node_index.keys().isdisjoint(nodes):
            raise InvalidRequestError("virtual nodes that the model has already: put each of them once")
        homes = [self.worker_of(owner) for owner in owners]
        indexes = {names: tuple(map(self.worker_of, names)) for names in set(copies)}
        columns = {weight: self._column(weight, loads.get(weight), count) for weight in ORDER}
        self.nodes.extend(nodes)
        self.node_index.update(zip(nodes, range(first, first + count), strict=True))
        self.owner.extend(homes)
        self.copies.extend(self._sets.setdefault(workers, workers) for workers in map(indexes.__getitem__, copies))
        for index, home in enumerate(homes, first):
            self.owned[home].add(index)
        for weight, column in columns.items():
            self.columns[weight].extend(column)
            if weight is not Weight.COUNT and weight not in loads:
                self.unknown[weight].update(range(first, first + count))
                continue
            totals = self.totals[weight]
            for home, value in zip(homes, column, strict=True):
                totals[home] += value
            self.heaviest[weight] = max(self.heaviest[weight], max(column, default=0.0))

    @staticmethod
    def _column(weight: Weight, values: Sequence[float] | None, count: int) -> array[float]:
        """Validates one value per virtual node. Raises InvalidRequestError unless it is finite and 0 or more."""
        if values is None:
            return array("d", [1.0 if weight is Weight.COUNT else 0.0]) * count
        if count and not (min(values) >= 0 and math.isfinite(math.fsum(values))):
            raise InvalidRequestError(f"{weight.value} of virtual nodes: each must be 0 or more")
        return array("d", values)

    def remove_node(self, node: VirtualNode) -> None:
        index = self.node_of(node)
        if self.owner[index] != NOWHERE:
            self._own(index, NOWHERE)
        for weight in ORDER:
            self._weigh(index, weight, 0.0)
        self.homeless.discard(index)
        self.lacking.pop(index, None)
        self.copies[index] = ()
        self.nodes[index] = None
        del self.node_index[node]

    def move(self, node: VirtualNode, worker_id: str) -> None:
        """The virtual node runs on this worker now."""
        self._own(self.node_of(node), self.worker_of(worker_id))

    def hold(self, node: VirtualNode, copies: tuple[str, ...], lacking: Mapping[str, float] | None = None) -> None:
        """These workers hold all of its state now; those in `lacking` hold all but so many bytes."""
        index = self.node_of(node)
        workers = tuple(self.worker_of(worker) for worker in copies)
        self.copies[index] = self._sets.setdefault(workers, workers)
        self.lacking.pop(index, None)
        if lacking:
            self.lacking[index] = {self.worker_of(worker): size for worker, size in lacking.items()}

    def weigh(self, node: VirtualNode, load: Load) -> None:
        """Sets new weights. A weight of None stays unchanged."""
        index = self.node_of(node)
        for weight in ORDER:
            value = load.of(weight)
            if value is not None:
                self._weigh(index, weight, value)

    def node_of(self, node: VirtualNode) -> int:
        """The index. Raises UnknownError."""
        index = self.node_index.get(node)
        if index is None:
            raise UnknownError(f"virtual node {node.name} of job {node.job}: unknown")
        return index

    def _weigh(self, index: int, weight: Weight, value: float | None) -> None:
        if value is not None and not (math.isfinite(value) and value >= 0):
            raise InvalidRequestError(f"{weight.value} {value} of {self.nodes[index]}: must be 0 or more")
        if value is None:
            self.unknown[weight].add(index)
        else:
            self.unknown[weight].discard(index)
        column, owner = self.columns[weight], self.owner[index]
        if owner != NOWHERE:
            self.totals[weight][owner] += (value or 0.0) - column[index]
        column[index] = value or 0.0
        if column[index] > self.heaviest[weight]:
            self.heaviest[weight] = column[index]

    def _own(self, index: int, owner: int) -> None:
        former = self.owner[index]
        for weight in ORDER:
            value, loads = self.columns[weight][index], self.totals[weight]
            if former != NOWHERE:
                loads[former] -= value
            if owner != NOWHERE:
                loads[owner] += value
        if former != NOWHERE:
            self.owned[former].discard(index)
        (self.homeless.add if owner == NOWHERE else self.homeless.discard)(index)
        if owner != NOWHERE:
            self.owned[owner].add(index)
        self.owner[index] = owner
