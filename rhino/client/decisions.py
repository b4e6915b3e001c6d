"""The decisions of adaptation about the load of queries."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DecidedMove:
    """The move of a virtual node between two workers."""

    virtual_node: str
    origin: str
    target: str


@dataclass(frozen=True, slots=True)
class AdaptationDecision:
    """One decision, or the same one several times in a row.

    `goal`: time, rows, bytes or count; empty: none. `measured`, `expected` and `planned` are imbalances: the load of
    the busiest worker in that weight over the mean. They are of the newest batches, of the forecast, and of the
    forecast after the moves. `gain_s` and `cost_s` are seconds within the horizon. None: not computed. `hot`: virtual
    nodes that alone exceed a worker's share. Times ending in `_ms` are wall clock.
    """

    number: int
    started_ms: int
    finished_ms: int
    times: int
    job: str
    outcome: str
    why: str
    measured: float | None
    expected: float | None
    planned: float | None
    gain_s: float | None
    cost_s: float | None
    bytes_to_move: int
    moves: tuple[DecidedMove, ...]
    hot: tuple[str, ...]
    handover_id: str
    goal: str


@dataclass(frozen=True, slots=True)
class Decisions:
    """`mode` is that of the manager: off, observe or act. The decisions are oldest first."""

    mode: str
    decisions: tuple[AdaptationDecision, ...]
