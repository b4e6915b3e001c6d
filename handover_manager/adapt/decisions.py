"""The table of the decisions of adaptation."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from handover_manager.events import Effect, Persist
from rhino_model.decisions import Decision

DECISION_PREFIX = "handover_manager/decision/"
KEPT = 512  # decisions


class DecisionTable:
    """The newest KEPT decisions. Methods return effects, to be executed in order."""

    def __init__(self, restored: Iterable[Decision] = ()) -> None:
        self._all = {one.number: one for one in sorted(restored, key=lambda one: one.number)}
        self._newest: dict[str, Decision] = {one.job: one for one in self._all.values()}

    def all(self) -> list[Decision]:
        """Oldest first."""
        return list(self._all.values())

    def add(self, decision: Decision) -> list[Effect]:
        """Adds a decision and sets its number. Writes nothing while a decision to do nothing is repeated."""
        former = self._all.get(self._newest[decision.job].number) if decision.job in self._newest else None
        if former is not None and decision.outcome is former.outcome and not decision.handover_id:
            same = dataclasses.replace(
                decision,
                number=former.number,
                started_ms=former.started_ms,
                finished_ms=decision.started_ms,
                times=former.times + 1,
            )
            self._keep(same)
            return []
        number = max(self._all, default=0) + 1
        made = dataclasses.replace(decision, number=number, finished_ms=decision.started_ms)
        self._keep(made)
        effects: list[Effect] = [Persist(decision_key(number), made)]
        if former is not None and former.times > 1:
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
