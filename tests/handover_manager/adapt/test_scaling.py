"""The number of workers that a query needs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handover_manager.adapt.scaling import (
    BACKLOG_MAX,
    HARDLY,
    UTILIZATION,
    Lazily,
    Line,
    Wanted,
    fit,
    with_backlog,
    workers_wanted,
)
from rhino_core.ids import VirtualNode

HOUR_S = 3600.0


def loads(*seconds: float) -> dict[VirtualNode, float]:
    return {VirtualNode("q", 0, partition): value for partition, value in enumerate(seconds)}


def test_the_line_is_found_where_the_loads_differ() -> None:
    found = fit([(x, 0.5 + 0.25 * x) for x in (2.0, 4.0, 8.0)])
    assert found is not None
    assert found.fixed_s == pytest.approx(0.5)
    assert found.per_s == pytest.approx(0.25)


def test_equal_loads_say_nothing_about_what_is_fixed() -> None:
    found = fit([(4.0, 2.0), (4.1, 2.05)])
    assert found is not None
    assert found.fixed_s == 0.0
    assert found.per_s == pytest.approx(0.5)
    assert fit([]) is None
    assert fit([(0.0, 1.0)]) is None


@given(
    st.lists(st.floats(0.01, 20), min_size=1, max_size=40),
    st.floats(0, 2),
    st.floats(0.1, 1),
    st.floats(0.5, 60),
    st.integers(1, 50),
)
def test_the_number_is_the_least_that_suffices(
    seconds: list[float], fixed_s: float, per_s: float, trigger_s: float, workers_max: int
) -> None:
    load_s = loads(*seconds)
    line = Line(fixed_s, per_s)
    points = [(x, line.batch_s(x)) for x in (1.0, 2.0, 4.0)]
    wanted = workers_wanted(load_s, points, trigger_s, workers_max)

    def batch_s(workers: int) -> float:
        return line.batch_s(max(sum(seconds) / workers, *seconds)) - 1e-6

    most = min(len(seconds), workers_max)
    enough = [count for count in range(1, most + 1) if batch_s(count) <= UTILIZATION * trigger_s]
    assert wanted.workers is not None
    assert 1 <= wanted.workers <= most
    if enough:
        assert wanted.workers <= max(enough[0], 1) + 1
    else:
        assert "hardly help" in wanted.why
        best_s = min(batch_s(count) for count in range(1, most + 1))
        assert batch_s(wanted.workers) <= (1 + HARDLY) * best_s + 1e-3
        assert wanted.workers == 1 or batch_s(wanted.workers - 1) > (1 + HARDLY) * best_s - 1e-3


def test_without_a_trigger_interval_nothing_is_wanted() -> None:
    wanted = workers_wanted(loads(1, 1), [(1, 1)], 0.0, 10)
    assert wanted.workers is None
    assert "no trigger interval" in wanted.why


def test_a_hot_virtual_node_is_no_reason_for_more_workers() -> None:
    wanted = workers_wanted(loads(10, 1, 1, 1, 1, 1), [(10, 10)], 5.0, 100)
    assert wanted.workers == 2
    assert "more than 2 hardly help" in wanted.why


def test_what_no_worker_shortens_is_no_reason_for_more_workers() -> None:
    """A batch takes 2.2 s besides its tasks, of 3 s: with twelve workers it would take 2.25 s, with three 2.4 s."""
    points = [(x, 2.2 + 0.2 * x) for x in (1.0, 2.0, 4.0)]
    wanted = workers_wanted(loads(*[0.25] * 12), points, 3.0, 100)
    assert wanted.workers == 3
    assert wanted.batch_s == pytest.approx(2.4)


def test_more_at_once_and_fewer_after_an_hour() -> None:
    lazily = Lazily(HOUR_S)
    assert lazily.workers(0.0) is None
    lazily.add(3, 0.0)
    lazily.add(6, 10.0)
    assert lazily.workers(10.0) == 6
    lazily.add(2, 20.0)
    assert lazily.workers(10.0 + HOUR_S - 1) == 6
    assert lazily.workers(10.0 + HOUR_S) == 2
    lazily.add(5, 5000.0)
    assert lazily.workers(5000.0) == 5


TWELVE = loads(*[1.0] * 12)
LINE = Line(0.0, 1.0)


def wanted_for(behind: float, catch_up_s: float = 600.0) -> Wanted:
    """Of twelve equal virtual nodes with 1 s each, at an interval of 5 s: four workers without a backlog."""
    plain = workers_wanted(TWELVE, [(3.0, 3.0)], 5.0, 100)
    assert plain.workers == 4
    return with_backlog(plain, TWELVE, LINE, behind, catch_up_s)


@pytest.mark.parametrize(
    ("behind", "workers", "why"),
    [
        (0.0, 4, "a batch would take 3.00 s of 5 s"),
        (1.0, 4, "a batch would take 3.00 s of 5 s"),  # that is what arrives while a batch runs
        (60.0, 4, "60.0 usual batches behind, which is worked off in 10 min"),  # the interval has room for it
        (120.0, 5, "120.0 usual batches behind: 5 work that off in 10 min, later 4 suffice"),
        (1e6, 8, "no number up to 8 works that off in 10 min"),
    ],
)
def test_a_backlog_wants_more_workers_within_bounds(behind: float, workers: int, why: str) -> None:
    wanted = wanted_for(behind)
    assert wanted.workers == workers
    assert why in wanted.why


@given(st.floats(0, 1e5), st.floats(60, 7200))
def test_the_wanted_workers_do_work_the_backlog_off_in_time(behind: float, catch_up_s: float) -> None:
    wanted = wanted_for(behind, catch_up_s)
    assert wanted.workers is not None
    assert 4 <= wanted.workers <= 4 * BACKLOG_MAX
    room = 5.0 / LINE.batch_s(max(12 / wanted.workers, 1.0)) - 1  # of a usual batch, in each interval
    if "no number" not in wanted.why and behind > 1:
        assert room * catch_up_s / 5.0 >= behind - 1e-3


def test_a_hot_virtual_node_bounds_what_a_backlog_wants() -> None:
    hot = loads(10, 1, 1, 1, 1, 1)
    plain = workers_wanted(hot, [(10, 10)], 15.0, 100)
    assert plain.workers == 2
    assert with_backlog(plain, hot, LINE, 1e6, 600.0).workers == 2
