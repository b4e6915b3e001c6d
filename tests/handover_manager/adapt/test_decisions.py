"""How many decisions are kept, in memory and in the journal."""

from __future__ import annotations

from handover_manager.adapt.decisions import KEPT, DecisionTable
from handover_manager.events import Effect, Persist
from rhino_core.records import Record
from rhino_model.decisions import Decision, Outcome


class Kept:
    """Decisions with their journal."""

    def __init__(self, restored: list[Decision]) -> None:
        self.journal: dict[str, Record] = {}
        self.decisions = DecisionTable(restored)

    def add(self, job: str, outcome: Outcome, times: int = 1) -> None:
        for _ in range(times):
            self.write(self.decisions.add(Decision(0, 0, job, outcome, "why")))

    def write(self, effects: list[Effect]) -> None:
        for effect in effects:
            assert isinstance(effect, Persist)
            self.journal.pop(effect.key, None)
            if effect.record is not None:
                self.journal[effect.key] = effect.record

    def alternate(self, job: str, count: int) -> None:
        for number in range(count):
            self.add(job, Outcome.BALANCED if number % 2 else Outcome.BUSY)


def test_a_decision_that_was_dropped_does_not_come_back_when_it_is_repeated() -> None:
    kept = Kept([])
    for name in ("calm-1", "calm-2", "calm-3"):
        kept.add(name, Outcome.BALANCED, times=2)
    kept.alternate("lively", KEPT)
    for name in ("calm-1", "calm-2", "calm-3"):
        kept.add(name, Outcome.BALANCED, times=2)
        kept.add(name, Outcome.BUSY)
    assert len(kept.decisions.all()) == KEPT
    assert len(kept.journal) == KEPT
    (again, _) = [one for one in kept.decisions.all() if one.job == "calm-1"]
    assert (again.outcome, again.times, again.number) == (Outcome.BALANCED, 2, KEPT + 4)


def test_too_many_of_a_former_process_are_dropped() -> None:
    former = [Decision(number, 0, "job", Outcome.MOVING, "why") for number in range(1, KEPT + 11)]
    kept = Kept(former)
    kept.add("job", Outcome.HELPED)
    assert [one.number for one in kept.decisions.all()] == list(range(12, KEPT + 12))
