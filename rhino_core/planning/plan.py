"""A plan: moves of virtual nodes, with a certificate: its greatest possible distance from the best plan."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from rhino_core.ids import VirtualNode
from rhino_core.planning.goals import Weight
from rhino_core.planning.model import NOWHERE, Model


class Move(NamedTuple):
    """One virtual node gets another worker. `origin` is empty if it was on none."""

    node: VirtualNode
    origin: str
    target: str


@dataclass(frozen=True, slots=True)
class Bound:
    """Loads per capacity in one weight.

    `peak`: the highest in the plan. `mean`: its share. `lower`: no plan has a lower peak (docs/design/placement.md).
    """

    peak: float
    mean: float
    lower: float

    @property
    def gap(self) -> float:
        """The excess of the plan's peak over the lower bound, as a part of this bound. 0: proven to be the best."""
        return self.peak / self.lower - 1 if self.lower else 0.0


@dataclass(frozen=True, slots=True)
class Certificate:
    """The proof of a plan's quality. `copied_lower`: no plan within the bands copies fewer bytes."""

    bounds: Mapping[Weight, Bound]
    copied_bytes: float
    copied_lower: float
    hot: tuple[VirtualNode, ...] = ()  # heavier than a worker's share: it alone decides the peak


@dataclass(frozen=True, slots=True)
class Plan:
    """`placed`: the new worker of each moving virtual node, both by index. `notes`: for people."""

    model: Model
    placed: Mapping[int, int]
    certificate: Certificate
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.placed)

    @property
    def moves(self) -> Iterator[Move]:
        """In the order of virtual nodes by index. Read them before the model changes."""
        for node in sorted(self.placed):
            yield self.move_of(node)

    def move_of(self, node: int) -> Move:
        """Raises KeyError if the virtual node does not move."""
        named, origin = self.model.nodes[node], self.model.owner[node]
        assert named is not None, f"virtual node {node} was removed after the plan"
        return Move(named, "" if origin == NOWHERE else self._name(origin), self._name(self.placed[node]))

    def _name(self, worker: int) -> str:
        site = self.model.sites[worker]
        assert site is not None, f"worker {worker} was removed after the plan"
        return site.worker_id
