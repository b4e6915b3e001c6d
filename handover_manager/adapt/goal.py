"""A goal of adaptation: the balance of one weight within a band, as some windows show it.

Time is the most important one. Rows, bytes and count matter once it is reached, and a plan for them leaves room in the
bands of more important weights, so the next change of load does not make the opposite plan.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from handover_manager.adapt.windows import imbalance, worker_loads
from rhino_core.ids import VirtualNode
from rhino_core.planning.goals import ORDER, Weight
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


AIM_PART = 0.25  # of the band of the most important weight: where a plan for it ends. The rest is for noise
KEPT_PART = 0.5  # of a band: where a plan for a less important weight ends, and as far as it may go in other bands
LEAST_FALL = 0.5  # of a band: by so much a plan for the most important weight lowers the imbalance. Less may be noise
LEAST_EXCESS = {Weight.ROWS: 10_000.0, Weight.BYTES: float(16 << 20)}  # of a worker over its share; less costs nobody


@dataclass(frozen=True, slots=True)
class Goal:
    """`loads`: the expected load of each virtual node. `desired`: their workers. `measured`: imbalances, oldest first.

    `workers`: the possible receivers of virtual nodes. `usual`: the median load of each virtual node in all windows.
    """

    weight: Weight
    band: float
    loads: Mapping[VirtualNode, float]
    desired: Mapping[VirtualNode, str]
    workers: Collection[str]
    measured: Sequence[float]
    usual: Mapping[VirtualNode, float]

    @property
    def leads(self) -> bool:
        return self.weight is ORDER[0]

    @property
    def aim(self) -> float:
        """The band in which a plan ends."""
        return (AIM_PART if self.leads else KEPT_PART) * self.band

    def expected(self, plan: Plan | None = None) -> dict[str, float]:
        """The expected load of each worker, after the moves of a plan if there is one."""
        return self._on_workers(self.loads, plan)

    def reached(self, broken: int) -> str:
        """Why nothing has to move, for people; empty: it is not reached. `broken`: windows beyond the band at least."""
        over, limit = self._over(), 1 + self.band
        if over < broken:
            return f"above {limit:.2f} in {over} of {len(self.measured)} windows, {broken} are needed"
        loads = self.expected()
        if imbalance(loads) <= limit:
            return f"the forecast is within {limit:.2f}"
        excess = max(loads.values()) - sum(loads.values()) / len(loads)
        if excess < LEAST_EXCESS.get(self.weight, 0.0):
            return f"a worker exceeds its share of {self.weight.value} by {excess:.0f} only"
        return "no worker could have less" if self.weight is Weight.COUNT and excess < 1 else ""

    def is_within(self, broken: int) -> bool:
        """Whether the goal is reached by the measured and by the expected loads."""
        return self._over() < broken and imbalance(self.expected()) <= 1 + self.band

    @property
    def least_fall(self) -> float:
        """The part of the mean by which a plan lowers the highest load at least, if this goal leads."""
        return LEAST_FALL * self.band

    def gains(self, plan: Plan) -> bool:
        """Whether a plan lowers the imbalance enough. Of the most important weight, a fall by noise is not enough.

        The planner chooses by the forecast, so a plan fits the noise of the newest windows. Older ones have another.
        """
        if not self.leads:
            return imbalance(self.expected(plan)) < imbalance(self.expected())
        return all(
            imbalance(self._on_workers(loads)) - self.least_fall >= imbalance(self._on_workers(loads, plan))
            for loads in (self.loads, self.usual)
        )

    def keeps(self, plan: Plan) -> bool:
        """Whether a plan for a less important goal leaves room in the band, or the imbalance as it is."""
        return imbalance(self.expected(plan)) <= max(1 + KEPT_PART * self.band, imbalance(self.expected())) + 1e-6

    def verdict(self, outcome: Outcome, why: str) -> Verdict:
        """Without a plan."""
        loads = self.expected()
        hot = _hot(self.loads, loads)
        return Verdict(outcome, why, self.measured[-1], imbalance(loads), hot=hot, goal=self.weight.value)

    def _on_workers(self, loads: Mapping[VirtualNode, float], plan: Plan | None = None) -> dict[str, float]:
        moved = {} if plan is None else {move.node: move.target for move in plan.moves}
        return worker_loads(loads, {**self.desired, **moved}, self.workers)

    def _over(self) -> int:
        return sum(ratio > 1 + self.band for ratio in self.measured)


def _hot(load: Mapping[VirtualNode, float], loads: Mapping[str, float]) -> tuple[str, ...]:
    """Virtual nodes with more than a worker's share each. Their keys cannot be split."""
    share = sum(loads.values()) / len(loads) if loads else 0.0
    return tuple(node.name for node, value in sorted(load.items()) if value > share > 0)
