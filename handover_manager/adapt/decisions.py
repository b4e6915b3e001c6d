"""Decisions of adaptation, also those to do nothing, with their numbers."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from handover_manager.events import Effect, Persist
from rhino_core.records import Record

DECISION_PREFIX = "handover_manager/decision/"
KEPT = 512  # decisions


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


class DecidedMove(NamedTuple):
    """A move of "<task group>/<partition>" between workers, for people."""

    node: str
    origin: str
    target: str


@dataclass(frozen=True, slots=True)
class Decision(Record):
    """One decision about a job, or the same one several times in a row.

    `goal`: the weight that it is about: time, rows, bytes or count; empty: none. `measured`,
    `expected` and `planned` are imbalances: the load of the busiest worker in that weight over the mean. They are of
    the newest window, of the forecast, and of the forecast after the moves. None: not computed. `gain_s` and `cost_s`
    are seconds within the horizon. `bytes`: to be copied. `hot`: virtual nodes that alone exceed a worker's share.
    Times are wall clock, in milliseconds. `repeated`: how often it was decided.
    """

    number: int
    at_ms: int
    job: str
    outcome: Outcome
    why: str
    measured: float | None = None
    expected: float | None = None
    planned: float | None = None
    gain_s: float | None = None
    cost_s: float | None = None
    bytes: int = 0
    moves: tuple[DecidedMove, ...] = ()
    hot: tuple[str, ...] = ()
    handover_id: str = ""
    last_ms: int = 0
    repeated: int = 1
    goal: str = ""

    def is_like(self, other: Decision) -> bool:
        """Whether both say the same about the same goal."""
        return (self.outcome, self.goal) == (other.outcome, other.goal)


class Decisions:
    """The newest KEPT decisions. Methods return effects, to be executed in order."""

    def __init__(self, restored: Iterable[Decision] = ()) -> None:
        self._all = {one.number: one for one in sorted(restored, key=lambda one: one.number)}
        self._newest: dict[str, Decision] = {one.job: one for one in self._all.values()}

    def all(self) -> list[Decision]:
        """Oldest first."""
        return list(self._all.values())

    def add(self, decision: Decision) -> list[Effect]:
        """Adds a decision, whose number is set here. Nothing is written while a decision to do nothing is repeated."""
        former = self._all.get(self._newest[decision.job].number) if decision.job in self._newest else None
        if former is not None and decision.is_like(former) and not decision.handover_id:
            same = dataclasses.replace(
                decision,
                number=former.number,
                at_ms=former.at_ms,
                last_ms=decision.at_ms,
                repeated=former.repeated + 1,
            )
            self._keep(same)
            return []
        number = max(self._all, default=0) + 1
        made = dataclasses.replace(decision, number=number, last_ms=decision.at_ms)
        self._keep(made)
        effects: list[Effect] = [Persist(decision_key(number), made)]
        if former is not None and former.repeated > 1:
            effects.insert(0, Persist(decision_key(former.number), former))
        for old in sorted(self._all)[:-KEPT]:
            del self._all[old]
            effects.append(Persist(decision_key(old), None))
        return effects

    def _keep(self, decision: Decision) -> None:
        self._all[decision.number] = self._newest[decision.job] = decision

    def forget(self, job: str) -> list[Effect]:
        """Drops the decisions about a job."""
        self._newest.pop(job, None)
        gone = [number for number, one in self._all.items() if one.job == job]
        for number in gone:
            del self._all[number]
        return [Persist(decision_key(number), None) for number in gone]


def decision_key(number: int) -> str:
    return f"{DECISION_PREFIX}{number:012}"
