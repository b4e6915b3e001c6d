"""The goals of a plan, in order: hard constraints, then the balance of each weight, then the cost of the moves."""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from rhino_core.errors import InvalidRequestError
from rhino_core.ids import VirtualNode


class Weight(enum.Enum):
    """The measure of an even spread: BYTES of state, ROWS (keys) of state, TIME of tasks, or COUNT of virtual nodes."""

    BYTES = "bytes"
    ROWS = "rows"
    TIME = "time"
    COUNT = "count"


ORDER = (Weight.TIME, Weight.ROWS, Weight.BYTES, Weight.COUNT)  # from the most to the least important
MOVE_BYTES = 1 << 20  # a move costs as much as copying this many bytes: two moves without copies are no bargain


@dataclass(frozen=True, slots=True)
class Goals:
    """The goals of a plan.

    `bands`: for each weight to balance, a worker's allowed excess over its share, as a part of the mean. Infinity: the
    weight breaks ties only. `cross_zone_price`: the cost of a byte copied between zones, if one within a zone costs 1.
    `move_bytes`: the further cost of each move, in bytes. `receivers`: the only workers that may receive virtual nodes;
    None: all that take any. `pinned`: virtual nodes that stay on their worker, unless it may not keep them. `barred`:
    for a virtual node, workers it does not go to. `kept`: weights without moves of their own. They only limit moves for
    other weights: no worker should get beyond the band, or beyond the furthest worker now. No move breaks this for a
    kept weight more important than all weights to balance.
    """

    bands: Mapping[Weight, float] = field(default_factory=lambda: dict.fromkeys(ORDER, 0.05))
    cross_zone_price: float = 4.0
    move_bytes: int = MOVE_BYTES
    receivers: frozenset[str] | None = None
    pinned: frozenset[VirtualNode] = frozenset()
    barred: Mapping[VirtualNode, frozenset[str]] = field(default_factory=dict)
    kept: frozenset[Weight] = frozenset()

    def __post_init__(self) -> None:
        if not self.bands:
            raise InvalidRequestError("goals without a weight: name at least one of time, rows, bytes, count")
        if self.kept >= self.bands.keys():
            raise InvalidRequestError("goals that only keep weights: name one to balance, too")
        for weight, band in self.bands.items():
            if math.isnan(band) or band < 0:
                raise InvalidRequestError(f"band {band} of {weight.value}: must be 0 or more, e.g. 0.05 for 5 %")
        if not math.isfinite(self.cross_zone_price) or self.cross_zone_price < 1:
            raise InvalidRequestError(f"price {self.cross_zone_price} of a byte between zones: must be 1 or more")
        if self.move_bytes < 1:
            raise InvalidRequestError(f"cost {self.move_bytes} of a move: must be 1 byte or more")
        if self.receivers is not None and not self.receivers:
            raise InvalidRequestError("receivers: name at least one worker, or leave them out for all")

    @property
    def weights(self) -> tuple[Weight, ...]:
        """The weights to balance, the most important first."""
        return tuple(weight for weight in ORDER if weight in self.bands)

    @property
    def firm(self) -> frozenset[Weight]:
        """Kept weights more important than all weights to balance."""
        first = next(rank for rank, weight in enumerate(self.weights) if weight not in self.kept)
        return frozenset(self.weights[:first])
