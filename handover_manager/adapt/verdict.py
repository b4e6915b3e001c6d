"""The answer to a look at the load of a query."""

from __future__ import annotations

from dataclasses import dataclass

from rhino_model.decisions import Outcome
from rhino_model.handovers import Plan


@dataclass(frozen=True, slots=True)
class Verdict:
    """`plan` is None unless the outcome is WOULD_MOVE or OVER_BUDGET. Numbers as in `Decision`."""

    outcome: Outcome
    why: str
    measured: float | None = None
    expected: float | None = None
    planned: float | None = None
    gain_s: float | None = None
    cost_s: float | None = None
    hot: tuple[str, ...] = ()
    plan: Plan | None = None
    goal: str = ""
