"""The decisions of adaptation about the load of queries, also those to do nothing."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from rhino_core.records import Record


class Outcome(enum.Enum):
    """The result of one look at the load of a query.

    Nothing moves: TOO_FEW windows were measured; copies are RECOVERING; another handover or a drain makes the manager
    BUSY; the query is CATCHING_UP; its load is BALANCED; the planner found NOTHING_BETTER; all virtual
    nodes are COOLING_DOWN; the gain is NOT_WORTH the cost; the plan is OVER_BUDGET; or it WOULD_MOVE, but the mode is
    observe.

    MOVING: a handover begins. It has HELPED; or it is UNVERIFIED, because the query stopped, was idle, or lost a
    worker; or it did not help, so its virtual nodes are RETURNING and then RETURNED; or it has FAILED.
    """

    TOO_FEW = "too_few_windows"
    RECOVERING = "recovering"
    BUSY = "busy"
    CATCHING_UP = "catching_up"
    BALANCED = "balanced"
    NOTHING_BETTER = "nothing_better"
    COOLING_DOWN = "cooling_down"
    NOT_WORTH = "not_worth"
    OVER_BUDGET = "over_budget"
    WOULD_MOVE = "would_move"
    MOVING = "moving"
    HELPED = "helped"
    UNVERIFIED = "unverified"
    RETURNING = "returning"
    RETURNED = "returned"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class DecidedMove(Record):
    """The move of a virtual node between two workers."""

    virtual_node: str
    origin: str
    target: str


@dataclass(frozen=True, slots=True)
class Decision(Record):
    """One decision about a job, or the same one several `times` in a row.

    `measured`, `expected` and `planned` are imbalances: the task time of the busiest worker over the mean. They are of
    the newest batches, of the forecast, and of the forecast after the moves. `gain_s` and `cost_s` are seconds within
    the horizon. None: not computed. `bytes_to_move`: to be copied. `hot`: virtual nodes that alone exceed a worker's
    share. Times ending in `_ms` are wall clock: the first and the last decision of the row.
    """

    number: int
    started_ms: int
    job: str
    outcome: Outcome
    why: str
    measured: float | None = None
    expected: float | None = None
    planned: float | None = None
    gain_s: float | None = None
    cost_s: float | None = None
    bytes_to_move: int = 0
    moves: tuple[DecidedMove, ...] = ()
    hot: tuple[str, ...] = ()
    handover_id: str = ""
    finished_ms: int = 0
    times: int = 1


@dataclass(frozen=True, slots=True)
class Decisions:
    """`mode`: of the manager: off, observe or act. The decisions are oldest first."""

    mode: str
    decisions: tuple[Decision, ...]
