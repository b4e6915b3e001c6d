"""A plan: moves of virtual nodes, and the virtual nodes that no move can balance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from rhino_core.ids import VirtualNode


class Move(NamedTuple):
    """One virtual node gets another worker. `why`: the reason for this worker, for people."""

    node: VirtualNode
    origin: str
    target: str
    why: str


class Hot(NamedTuple):
    """A virtual node heavier than a worker's share. `worker`: where it is after the plan. `shares`: of its load."""

    node: VirtualNode
    worker: str
    load: float
    shares: float


@dataclass(frozen=True, slots=True)
class Plan:
    """Moves in the order of the virtual nodes."""

    moves: tuple[Move, ...]
    hot: tuple[Hot, ...] = ()
