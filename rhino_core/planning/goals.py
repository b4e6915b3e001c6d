"""The goals of a plan, in order: hard constraints, then the balance of each weight, then the cost of the moves."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field

from rhino_core.ids import VirtualNode


class Weight(enum.Enum):
    """The measure of an even spread: BYTES of state, ROWS (keys) of state, TIME of tasks, or COUNT of virtual nodes."""

    BYTES = "bytes"
    ROWS = "rows"
    TIME = "time"
    COUNT = "count"


ORDER = (Weight.TIME, Weight.ROWS, Weight.BYTES, Weight.COUNT)  # from the most to the least important


@dataclass(frozen=True, slots=True)
class Goals:
    """The goals of a plan.

    `bands`: for each weight to balance, a worker's allowed excess over its share, as a part of the mean. Infinity: the
    weight breaks ties only. `receivers`: the only workers that may receive virtual nodes; None: all that keep any.
    `pinned`: virtual nodes that stay on their worker, unless it may not keep them. `barred`: for a virtual node,
    workers it does not go to. `kept`: weights without moves of their own, beside at least one with moves. They only
    limit moves for other weights: no worker should get beyond the band, or beyond the furthest worker now. No move
    breaks this for a kept weight more important than all weights to balance.
    """

    bands: Mapping[Weight, float]
    receivers: frozenset[str] | None = None
    pinned: frozenset[VirtualNode] = frozenset()
    barred: Mapping[VirtualNode, frozenset[str]] = field(default_factory=dict)
    kept: frozenset[Weight] = frozenset()

    @property
    def weights(self) -> tuple[Weight, ...]:
        """The weights to balance, the most important first."""
        return tuple(weight for weight in ORDER if weight in self.bands)

    @property
    def firm(self) -> frozenset[Weight]:
        """Kept weights more important than all weights to balance."""
        first = next(rank for rank, weight in enumerate(self.weights) if weight not in self.kept)
        return frozenset(self.weights[:first])
