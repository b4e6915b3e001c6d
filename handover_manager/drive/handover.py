"""A handover: its steps in order, and totals over them."""

from __future__ import annotations

from dataclasses import dataclass, field

from handover_manager.drive.states import State
from handover_manager.drive.step import DrivenStep
from rhino_core.ids import GroupId, VirtualNode
from rhino_model.handovers import Phase, Plan


@dataclass(slots=True)
class Gap:
    """The distance to the next marker: not before `until` (monotonic), nor before each job has reported its batches."""

    until: float
    batches: dict[str, int] = field(default_factory=dict)  # LoggedBatches.reported that is to be reached, by job


@dataclass(slots=True)
class DrivenHandover:
    """The record of a handover.

    Times ending in _ms are wall clock. Those ending in _at are monotonic, and not journalled.
    """

    handover_id: str
    plan: Plan
    deadline_s: float  # for each step
    started_ms: int
    steps: list[DrivenStep]
    begin_at: float = 0.0  # the requested start
    gap: Gap | None = None  # after a confirmed step
    finished_ms: int | None = None
    by: str = ""  # identity of who asked for it; empty: not known

    @property
    def current(self) -> DrivenStep | None:
        """The first step that has not ended."""
        return next((step for step in self.steps if not step.state.ended), None)

    @property
    def final(self) -> bool:
        """Whether it has ended, and no group remains to be changed."""
        return all(step.state.final for step in self.steps)

    @property
    def ended(self) -> bool:
        return self.current is None

    @property
    def phase(self) -> Phase:
        """The phase of the current step.

        After the end: CONFIRMED if every step is, else the phase of the first other step.
        """
        if self.current is not None:
            return self.current.phase
        return next((s.phase for s in self.steps if s.phase is not Phase.CONFIRMED), Phase.CONFIRMED)

    @property
    def reason(self) -> str:
        """Why it did not end CONFIRMED, for people."""
        failed = next((s for s in self.steps if s.state.ended and s.phase is not Phase.CONFIRMED), None)
        if failed is None or len(self.steps) == 1:
            return failed.reason if failed else ""
        stand = sum(step.phase is Phase.CONFIRMED for step in self.steps)
        number = self.steps.index(failed) + 1
        return f"step {number} of {len(self.steps)}: {failed.reason}; confirmed and standing: {stand}"

    @property
    def configuration_epoch(self) -> int | None:
        """The epoch of the newest marker. None before the first marker."""
        return max((epoch for step in self.steps for epoch in step.configuration_epochs.values()), default=None)

    @property
    def marked_ms(self) -> int | None:
        """The time of the newest marker. None before the first marker."""
        return max((step.marker.set_ms for step in self.steps if step.marker is not None), default=None)

    @property
    def confirmed_batch_id(self) -> int | None:
        """The batch of the last step, once all steps are confirmed. None if the query was idle then, and before."""
        last = self.steps[-1].outcome
        return last.batch_id if self.phase is Phase.CONFIRMED and last is not None else None

    @property
    def bytes_moved(self) -> int:
        return sum(step.bytes_moved for step in self.steps)

    @property
    def waiting_for(self) -> set[VirtualNode]:
        return self.current.waiting_for if self.current else set()

    @property
    def settling(self) -> set[GroupId]:
        return set().union(*(step.settling for step in self.steps))

    @property
    def unwinding(self) -> set[GroupId]:
        return set().union(*(step.unwinding for step in self.steps))

    @property
    def pause_s(self) -> float | None:
        """The longest measured pause of the steps."""
        outcomes = [step.outcome for step in self.steps if step.outcome is not None]
        return max((outcome.pause_s for outcome in outcomes if outcome.pause_s is not None), default=None)

    @property
    def total_s(self) -> float | None:
        """Seconds from the start to the end, once it is confirmed."""
        if self.phase is not Phase.CONFIRMED or self.finished_ms is None:
            return None
        return max(self.finished_ms - self.started_ms, 0) / 1000

    @property
    def error(self) -> float | None:
        """Relative error of the predicted duration: |predicted - measured| / measured.

        None if one of them is missing, or if a query was idle. The wait until a requested start is part of both, so the
        divisor leaves it out.
        """
        predicted, measured = self.plan.prediction.total_s, self.total_s
        if predicted is None or measured is None:
            return None
        if any(step.outcome is None or step.outcome.batch_id is None for step in self.steps):
            return None
        worked = measured - max(self.plan.strategy.start_at_ms - self.started_ms, 0) / 1000
        return abs(predicted - measured) / worked if worked > 0 else None

    def step_of(self, group: GroupId) -> DrivenStep | None:
        return next((step for step in self.steps if group in step.target_of_group), None)

    def check_invariants(self) -> None:
        """Raises AssertionError if the record contradicts itself."""
        assert self.ended == (self.finished_ms is not None), self
        assert sum(step.state is State.MARKED for step in self.steps) <= 1, self
        order = [(step.phase is Phase.CONFIRMED, step.state is State.MARKED) for step in self.steps]
        assert order == sorted(order, reverse=True), self  # confirmed steps, then the marked one, then the others
        assert tuple(step.moves for step in self.steps) == tuple(step.moves for step in self.plan.steps), self
        for step in self.steps:
            step.check_invariants()


def make_steps(handover_id: str, plan: Plan) -> list[DrivenStep]:
    """The named steps of a new or a restored handover."""
    count = len(plan.steps)
    names = [f"handover {handover_id}{f' step {n}' if count > 1 else ''}" for n in range(1, count + 1)]
    steps = zip(names, (step.moves for step in plan.steps), strict=True)
    return [DrivenStep(name, moves, waiting_for={move.node for move in moves}) for name, moves in steps]
