"""The goal of adaptation: the balance of task time within a band, as some windows show it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from handover_manager.adapt.windows import imbalance, worker_loads
from rhino_core.ids import VirtualNode
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


AIM_PART = 0.25  # of the band: where a plan ends. The rest is for noise
LEAST_FALL = 0.5  # of the band: by so much a plan lowers the imbalance. Less may be noise


@dataclass(frozen=True, slots=True)
class Goal:
    """`loads`: the expected task time of each virtual node. `desired`: their workers. `measured`: imbalances, oldest
    first.

    `workers`: the possible receivers of virtual nodes. `usual`: the median task time of each virtual node in all
    windows.
    """

    band: float
    loads: Mapping[VirtualNode, float]
    desired: Mapping[VirtualNode, str]
    workers: Collection[str]
    measured: Sequence[float]
    usual: Mapping[VirtualNode, float]

    @property
    def aim(self) -> float:
        """The band in which a plan ends."""
        return AIM_PART * self.band

    def expected(self, plan: Plan | None = None) -> dict[str, float]:
        """The expected load of each worker, after the moves of a plan if there is one."""
        return self._on_workers(self.loads, plan)

    def reached(self, broken: int) -> str:
        """Why nothing has to move, for people; empty: it is not reached. `broken`: windows beyond the band at least."""
        limit = 1 + self.band
        over = sum(ratio > limit for ratio in self.measured)
        if over < broken:
            return f"above {limit:.2f} in {over} of {len(self.measured)} windows, {broken} are needed"
        return f"the forecast is within {limit:.2f}" if imbalance(self.expected()) <= limit else ""

    @property
    def least_fall(self) -> float:
        """The part of the mean by which a plan lowers the highest load at least."""
        return LEAST_FALL * self.band

    def gains(self, plan: Plan) -> bool:
        """Whether a plan lowers the imbalance enough: a fall by noise is not enough.

        The planner chooses by the forecast, so a plan fits the noise of the newest windows. Older ones have another.
        """
        return all(
            imbalance(self._on_workers(loads)) - self.least_fall >= imbalance(self._on_workers(loads, plan))
            for loads in (self.loads, self.usual)
        )

    def verdict(self, outcome: Outcome, why: str) -> Verdict:
        """Without a plan."""
        loads = self.expected()
        return Verdict(outcome, why, self.measured[-1], imbalance(loads), hot=_hot(self.loads, loads))

    def _on_workers(self, loads: Mapping[VirtualNode, float], plan: Plan | None = None) -> dict[str, float]:
        moved = {} if plan is None else {move.node: move.target for move in plan.moves}
        return worker_loads(loads, {**self.desired, **moved}, self.workers)


def _hot(load: Mapping[VirtualNode, float], loads: Mapping[str, float]) -> tuple[str, ...]:
    """Virtual nodes with more than a worker's share each. Their keys cannot be split."""
    share = sum(loads.values()) / len(loads) if loads else 0.0
    return tuple(node.name for node, value in sorted(load.items()) if value > share > 0)
