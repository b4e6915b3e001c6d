"""The forecast of a virtual node's load from some windows."""

from __future__ import annotations

import pytest

from handover_manager.adapt.windows import Batch, Windows, forecast
from handover_manager.plan.work import Work
from rhino_core.ids import VirtualNode

NODE = VirtualNode("job", 0, 7)


def expected(loads: list[float], error: float) -> float:
    seconds = [{NODE: load} for load in loads]
    return forecast(seconds, 3, [{NODE: error}] * len(loads))[NODE]


def test_a_window_knows_how_far_its_mean_may_be_off() -> None:
    windows = Windows(batches=4, kept=4)
    for seconds in (9.0, 1.0, 2.0, 3.0, 4.0):  # the first one under a map does not count
        windows.add(Batch("run", 1, {NODE: Work(None, seconds)}), {NODE: "a"})
    [window] = windows.closed
    assert window.load_s[NODE] == 2.5
    assert window.error_s[NODE] == pytest.approx((5 / 3 / 4) ** 0.5)  # the variance of the four is 5/3


@pytest.mark.parametrize("loads", [[0.297, 0.326, 0.377, 0.4], [0.296, 0.348, 0.376, 0.381]])
def test_a_rise_by_chance_after_a_step_is_no_trend(loads: list[float]) -> None:
    """Of a measured run: the load of the query rose by half after the first window, and stayed."""
    assert expected(loads, error=0.03) == loads[2]


def test_a_rise_beyond_chance_continues_for_two_windows() -> None:
    loads = [0.3, 0.4, 0.5, 0.6]
    assert expected(loads, error=0.03) == pytest.approx(0.5 + 4 * 0.1)
    assert expected([0.3, 0.4, 0.39, 0.6], error=0.03) == 0.4


def test_loads_without_errors_are_exact() -> None:
    """As of rows and bytes."""
    assert forecast([{NODE: load} for load in (100.0, 101.0, 102.0, 103.0)], 3)[NODE] == pytest.approx(106.0)
