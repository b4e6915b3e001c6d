"""The goals of a plan, in order: hard constraints, then the balance of a weight, then the cost of the moves."""

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


@dataclass(frozen=True, slots=True)
class Goals:
    """The goals of a plan.

    `weight`: to be balanced. `band`: a worker's allowed excess over its share, as a part of the mean. Infinity: the
    weight breaks ties only. `receivers`: the only workers that may receive virtual nodes; None: all that keep any.
    `pinned`: virtual nodes that stay on their worker, unless it may not keep them. `barred`: for a virtual node,
    workers it does not go to.
    """

    weight: Weight
    band: float
    receivers: frozenset[str] | None = None
    pinned: frozenset[VirtualNode] = frozenset()
    barred: Mapping[VirtualNode, frozenset[str]] = field(default_factory=dict)
