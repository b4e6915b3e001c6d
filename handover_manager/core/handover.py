"""A handover: steps one after the other, and what they add up to."""

from __future__ import annotations

from dataclasses import dataclass, field

from handover_manager.core.plan import Plan
from handover_manager.core.step import Phase, Step
from rhino.ids import GroupId, VirtualNode


@dataclass(slots=True)
class Handover:
    """A handover's record. Times ending in _ms are wall clock; those ending in _at are monotonic, not journalled."""

    handover_id: str
    plan: Plan
    deadline_s: float  # of each step
    started_ms: int
    steps: list[Step]
    begin_at: float = 0.0  # the start that was asked for
    ready_at: float = 0.0  # not before then comes the next marker: the gap in seconds
    ready_after: dict[str, int] = field(default_factory=dict)  # nor before so many batches: by job, Job.reported
    finished_ms: int = 0
    noted_ms: int = -1  # `finished_ms` as journalled; -1: not yet

    @property
    def current(self) -> Step | None:
        """The first step that has not ended."""
        return next((step for step in self.steps if not step.phase.ended), None)

    @property
    def ended(self) -> bool:
        return self.current is None

    @property
    def phase(self) -> Phase:
        """Of the current step; at the end CONFIRMED when every step is, else as the first one ended that is not."""
        if self.current is not None:
            return self.current.phase
        return next((s.phase for s in self.steps if s.phase is not Phase.CONFIRMED), Phase.CONFIRMED)

    @property
    def reason(self) -> str:
        """For people, why it did not end CONFIRMED."""
        failed = next((s for s in self.steps if s.phase.ended and s.phase is not Phase.CONFIRMED), None)
        if failed is None or len(self.steps) == 1:
            return failed.reason if failed else ""
        stand = sum(step.phase is Phase.CONFIRMED for step in self.steps)
        number = self.steps.index(failed) + 1
        return f"step {number} of {len(self.steps)}: {failed.reason}; confirmed and standing: {stand}"

    @property
    def configuration_epoch(self) -> int:
        """Of the newest marker; 0 before the first."""
        return max((epoch for step in self.steps for epoch in step.configuration_epochs.values()), default=0)

    @property
    def marked_ms(self) -> int:
        """Of the newest marker."""
        return max(step.marked_ms for step in self.steps)

    @property
    def confirmed_batch_id(self) -> int:
        """Of the last step, once all are confirmed."""
        return self.steps[-1].confirmed_batch_id if self.phase is Phase.CONFIRMED else -1

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
        """The longest measured pause of its confirmed steps."""
        return max((step.pause_s for step in self.steps if step.pause_s is not None), default=None)

    @property
    def total_s(self) -> float | None:
        """From the start to the end, once it is confirmed."""
        done = self.phase is Phase.CONFIRMED and self.finished_ms
        return max(self.finished_ms - self.started_ms, 0) / 1000 if done else None

    @property
    def error(self) -> float | None:
        """|predicted - measured| / measured of its time; None when one of them is missing, or a query was idle. The
        wait until the start that was asked for is in both, and makes neither better."""
        predicted, measured = self.plan.prediction.total_s, self.total_s
        if predicted is None or measured is None or any(step.confirmed_batch_id < 0 for step in self.steps):
            return None
        worked = measured - max(self.plan.strategy.start_at_ms - self.started_ms, 0) / 1000
        return abs(predicted - measured) / worked if worked > 0 else None

    def step_of(self, group: GroupId) -> Step | None:
        return next((step for step in self.steps if group in step.target_of_group), None)

    def check_invariants(self) -> None:
        """Raises AssertionError when the record contradicts itself."""
        assert self.ended == bool(self.finished_ms), self
        assert sum(step.phase is Phase.MARKED for step in self.steps) <= 1, self
        order = [(step.phase is Phase.CONFIRMED, step.phase is Phase.MARKED) for step in self.steps]
        assert order == sorted(order, reverse=True), self  # confirmed ones, then the marked one, then the others
        assert tuple(step.moves for step in self.steps) == self.plan.steps, self
        for step in self.steps:
            step.check_invariants()


def make_steps(handover_id: str, plan: Plan) -> list[Step]:
    """The steps of a new handover, or of a restored one, with their names."""
    count = len(plan.steps)
    names = [f"handover {handover_id}{f' step {n}' if count > 1 else ''}" for n in range(1, count + 1)]
    return [Step(name, moves) for name, moves in zip(names, plan.steps, strict=True)]
