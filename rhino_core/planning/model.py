"""The model of placement: workers and virtual nodes in columns, as they are when a plan is made."""

from __future__ import annotations

import math
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rhino_core.errors import UnknownError
from rhino_core.ids import VirtualNode
from rhino_core.planning.goals import Weight


@dataclass(frozen=True, slots=True)
class Site:
    """A worker. An empty zone is unknown.

    `room_bytes`: how much state it may receive. `stays`: virtual nodes may remain on it, and it may receive further
    ones. A worker to be emptied does neither.
    """

    worker_id: str
    zone: str = ""
    room_bytes: float = math.inf
    stays: bool = True


@dataclass(slots=True)
class Model:
    """Workers and virtual nodes by index. Read the columns, do not change them.

    `copies`: workers with all state of the virtual node. `lacking`: bytes missing on other workers, if they hold a
    part. `columns`: weights of the virtual nodes, as far as they are known. `totals`: loads of each worker in these.
    """

    sites: list[Site] = field(default_factory=list)
    worker_index: dict[str, int] = field(default_factory=dict)
    owned: list[set[int]] = field(default_factory=list)
    nodes: list[VirtualNode] = field(default_factory=list)
    node_index: dict[VirtualNode, int] = field(default_factory=dict)
    owner: list[int] = field(default_factory=list)
    copies: list[tuple[int, ...]] = field(default_factory=list)
    lacking: dict[int, dict[int, float]] = field(default_factory=dict)
    columns: dict[Weight, array[float]] = field(default_factory=dict)
    totals: dict[Weight, list[float]] = field(default_factory=dict)

    def put_workers(self, sites: Sequence[Site]) -> None:
        """Adds all workers, each of them once."""
        self.sites = list(sites)
        self.worker_index = {site.worker_id: index for index, site in enumerate(sites)}
        self.owned = [set() for _ in sites]

    def worker_of(self, worker_id: str) -> int:
        """The index. Raises UnknownError."""
        index = self.worker_index.get(worker_id)
        if index is None:
            known = ", ".join(sorted(self.worker_index)[:20]) or "none"
            raise UnknownError(f"worker {worker_id!r}: unknown; known are {known}")
        return index

    def put_nodes(
        self,
        nodes: Sequence[VirtualNode],
        owners: Sequence[str],
        loads: Mapping[Weight, Sequence[float]],
        copies: Sequence[tuple[str, ...]],
        lacking: Mapping[VirtualNode, Mapping[str, float]],
    ) -> None:
        """Adds all virtual nodes, after the workers. `loads` has their bytes at least; the count is known without it.

        `lacking`: for virtual nodes with a part of their state elsewhere, the missing bytes there. Raises UnknownError.
        """
        self.nodes = list(nodes)
        self.node_index = {node: index for index, node in enumerate(nodes)}
        self.owner = [self.worker_of(owner) for owner in owners]
        indexes = {names: tuple(map(self.worker_of, names)) for names in set(copies)}
        self.copies = [indexes[names] for names in copies]
        for node, missing in lacking.items():
            self.lacking[self.node_index[node]] = {self.worker_of(name): size for name, size in missing.items()}
        for index, home in enumerate(self.owner):
            self.owned[home].add(index)
        counted: Mapping[Weight, Sequence[float]] = {**loads, Weight.COUNT: [1.0] * len(nodes)}
        for weight, values in counted.items():
            column = self.columns[weight] = array("d", values)
            totals = self.totals[weight] = [0.0] * len(self.sites)
            for home, value in zip(self.owner, column, strict=True):
                totals[home] += value
