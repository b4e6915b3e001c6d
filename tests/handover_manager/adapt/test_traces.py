"""Adaptation under seeded traces of load. Bugs that are planted must be found by the same checks."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from handover_manager.adapt import plans, proposal, windows
from handover_manager.adapt.adaptation import Adaptation
from handover_manager.adapt.budget import Budget, Left
from handover_manager.adapt.cool_downs import CoolDown, CoolDowns
from handover_manager.adapt.goal import Goal
from handover_manager.adapt.lag import Lags
from handover_manager.adapt.windows import forecast
from rhino_model.intents import Rebalance, Weight
from workloads.adaptation import traces

SEEDS = 12


FOUND = (
    40,  # a backlog soon after a restart of the manager was taken for the usual
    893,  # a plan was taken back while copies were lacking
    307,  # a forecast rested on the windows of a backlog that was over
    4093,  # noise at the edge of the band moved virtual nodes for ever
    8982,  # an exchange that gained next to nothing, and cost nothing, was chosen before better ones
)


@pytest.mark.parametrize("seed", [*range(SEEDS), *FOUND])
def test_every_trace_holds(seed: int) -> None:
    trace = traces.run(seed)
    assert not traces.problems(trace), str(trace)


@pytest.mark.nightly
@pytest.mark.timeout(7200)
def test_two_thousand_traces_hold() -> None:
    for seed in range(SEEDS, 2000):
        trace = traces.run(seed)
        assert not traces.problems(trace), str(trace)


def no_cool_down(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(CoolDowns, "active", lambda self, job, now: {})


def moves_on_whatever_its_load_is(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(CoolDown, "may_move_on", lambda self, now: True)


def goes_back_in_its_cool_down(patch: pytest.MonkeyPatch) -> None:
    """A virtual node whose load has risen may go anywhere, also back."""
    moving_on = proposal._moving_on
    patch.setattr(proposal, "_moving_on", lambda query, policy: dict.fromkeys(moving_on(query, policy), frozenset()))


def stale_load(patch: pytest.MonkeyPatch) -> None:
    """The first forecast is used for ever."""
    first: list[dict[object, float]] = []

    def stale(seen: object, newest: int, errors: object) -> object:
        first.append(forecast(seen, newest, errors))  # type: ignore[arg-type]
        return first[0]

    patch.setattr(proposal, "forecast", stale)


def backlog_is_load(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(windows, "CATCHING_UP", math.inf)


def lag_is_no_matter(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Lags, "backlog", "")


def plans_for_another_goal(patch: pytest.MonkeyPatch) -> None:
    """The load is judged by time, and the plan is made by count."""
    patch.setattr(plans, "Adapt", lambda band: Rebalance(Weight.COUNT))
    patch.setattr(Goal, "gains", lambda self, plan: True)


def no_budget(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Budget, "left", lambda self, now: Left(1 << 60, 1 << 60))


def lacking_copies_are_no_matter(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Adaptation, "_recovering", lambda self, job, view: None)


@pytest.mark.parametrize(
    ("bug", "seed"),
    [
        (no_cool_down, 7),
        (moves_on_whatever_its_load_is, 9),
        (goes_back_in_its_cool_down, 23),
        (stale_load, 31),
        (backlog_is_load, 38),
        (plans_for_another_goal, 43),
        (lag_is_no_matter, 42),
        (no_budget, 3),
        (lacking_copies_are_no_matter, 5),
    ],
)
def test_a_planted_bug_is_found(
    bug: Callable[[pytest.MonkeyPatch], None], seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    bug(monkeypatch)
    assert traces.problems(traces.run(seed))
