"""Plans: balance, goals in their order, bad input. Small ones are compared with every possible placement."""

from __future__ import annotations

import dataclasses
import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rhino_core import errors
from rhino_core.planning.goals import Goals, Weight
from rhino_core.planning.model import Model, Site
from rhino_core.planning.propose import propose
from tests.rhino_core.planning.models import loads_after, model_of, node, placed_by, placements, small_models

TIME = Goals(Weight.TIME, 0.0)
COUNT = Goals(Weight.COUNT, 0.0)
BYTES = Goals(Weight.BYTES, 0.05)


@settings(deadline=None, max_examples=60)
@given(small_models(equal=True))
def test_equal_weights_are_spread_as_evenly_as_possible(model: Model) -> None:
    even = sorted(loads_after(model, COUNT, placed_by(propose(model, COUNT))))
    assert even[-1] - even[0] <= 1


@settings(deadline=None, max_examples=60)
@given(small_models())
def test_the_peak_exceeds_the_best_one_by_a_virtual_node_at_most(model: Model) -> None:
    peaks = [max(loads_after(model, TIME, placed)) for placed in placements(model)]
    peak = max(loads_after(model, TIME, placed_by(propose(model, TIME))))
    assert peak <= min(peaks) + max(model.columns[Weight.TIME])


@settings(deadline=None, max_examples=60)
@given(small_models())
def test_no_plan_is_worse_than_staying_and_the_model_stays_as_it_is(model: Model) -> None:
    before = dataclasses.asdict(model)
    after = max(loads_after(model, BYTES, placed_by(propose(model, BYTES))))
    assert after <= max(loads_after(model, BYTES, {})) + 1e-9
    assert dataclasses.asdict(model) == before


@settings(deadline=None, max_examples=100)
@given(small_models(), st.frozensets(st.integers(0, 5)))
def test_pinned_virtual_nodes_stay_and_the_others_make_the_best_of_it(model: Model, numbers: frozenset[int]) -> None:
    goals = Goals(Weight.TIME, 0.0, pinned=frozenset(map(node, numbers)))
    moved = placed_by(propose(model, goals))
    assert not moved.keys() & numbers
    peak = max(loads_after(model, goals, moved))
    assert peak <= max(loads_after(model, goals, {})) + 1e-9
    best = min(max(loads_after(model, goals, placed)) for placed in placements(model) if not placed.keys() & numbers)
    assert peak <= best + max(model.columns[Weight.TIME])


@settings(deadline=None, max_examples=100)
@given(small_models(), st.integers(0, 5), st.integers(0, 2))
def test_no_virtual_node_goes_where_it_is_barred(model: Model, number: int, worker: int) -> None:
    goals = Goals(Weight.TIME, 0.0, barred={node(number): frozenset({f"w{worker}", "unknown"})})
    moved = placed_by(propose(model, goals))
    assert moved.get(number) != worker
    peak = max(loads_after(model, goals, moved))
    best = min(max(loads_after(model, goals, placed)) for placed in placements(model) if placed.get(number) != worker)
    assert peak <= best + max(model.columns[Weight.TIME])


def test_a_virtual_node_goes_to_the_next_best_worker_where_the_best_is_barred() -> None:
    model = model_of(3, [0, 0, 1, 2], [3.0, 3.0, 1.0, 2.0])
    goals = Goals(Weight.TIME, 0.3, pinned=frozenset({node(0)}), barred={node(1): frozenset({"w1"})})
    assert placed_by(propose(model, goals))[1] == 2


def test_a_worker_with_a_pinned_virtual_node_gives_away_its_others() -> None:
    model = model_of(2, [0, 0, 0, 1], [5.0, 1.0, 1.0, 3.0])
    plan = propose(model, Goals(Weight.TIME, 0.1, pinned=frozenset({node(0)})))
    assert placed_by(plan) == {1: 1, 2: 1}


def test_of_two_hot_virtual_nodes_the_one_that_is_not_pinned_leaves() -> None:
    for pinned in (0, 1):
        model = model_of(3, [0, 0, 1, 2], [9.0, 8.0, 1.0, 1.0])
        moved = placed_by(propose(model, Goals(Weight.TIME, 0.1, pinned=frozenset({node(pinned)}))))
        assert 1 - pinned in moved
        assert pinned not in moved


@pytest.mark.parametrize("weight", [Weight.TIME, Weight.ROWS, Weight.BYTES])
def test_a_weight_comes_within_its_band_at_the_scale_of_a_real_cluster(weight: Weight) -> None:
    chance, count = random.Random(1), 2000
    loads, owners = [chance.lognormvariate(0, 1) for _ in range(count)], [chance.randrange(50) for _ in range(count)]
    goals = Goals(weight, 0.05)
    model = model_of(50, owners, loads)
    after = loads_after(model, goals, placed_by(propose(model, goals)))
    assert max(after) * len(after) / sum(after) <= 1.0501


def test_holders_are_preferred_and_what_nobody_holds_stays_within_its_zone() -> None:
    sites = [Site(f"w{number}", zone=zone) for number, zone in enumerate(("north", "north", "south"))]
    plan = propose(model_of(sites, [0, 0, 0, 0, 2], [1] * 5, [[1], [], [], [], []]), COUNT)
    moves = {move.node.partition: move for move in plan.moves}
    assert (moves[0].target, moves[0].why) == ("w1", "the only other holder")
    assert [move.target for move in plan.moves] == ["w1", "w1"]


def test_a_virtual_node_heavier_than_a_share_is_named_and_the_others_leave_it() -> None:
    plan = propose(model_of(3, [0, 0, 0, 1, 2], [10, 1, 1, 1, 1]), Goals(Weight.TIME, 0.05))
    assert placed_by(plan).keys() == {1, 2}
    (hot,) = plan.hot
    assert (hot.node, hot.worker, hot.load) == (node(0), "w0", 10)
    assert hot.shares == pytest.approx(10 / (14 / 3))


def test_two_hot_virtual_nodes_part() -> None:
    model = model_of(4, [0, 0, 1, 2, 3], [10, 9, 1, 1, 1])
    plan = propose(model, Goals(Weight.TIME, 0.05))
    assert max(loads_after(model, TIME, placed_by(plan))) == 10


def test_infinite_bands_move_only_what_must_leave() -> None:
    sites = [Site("w0", stays=False), Site("w1"), Site("w2")]
    owners = [0] * 4 + [1] * 9
    plan = propose(model_of(sites, owners, [1.0] * len(owners)), Goals(Weight.BYTES, math.inf))
    assert [(move.origin, move.target) for move in plan.moves] == [("w0", "w2")] * 4
    assert {move.why.partition(":")[0] for move in plan.moves} == {"no holder of a replica is free"}


def test_what_fits_nowhere_and_unknown_receivers_are_refused_by_name() -> None:
    leaving = Site("w0", stays=False)
    with pytest.raises(errors.NoSpaceError, match=r"virtual node 0/1 .* fits on no other worker of w1: add workers"):
        propose(model_of([leaving, Site("w1", room_bytes=5 << 20)], [0, 0], [4, 4]), BYTES)
    with pytest.raises(errors.PreconditionError, match="no worker may keep virtual nodes"):
        propose(model_of([leaving, Site("w1", stays=False)], [0, 0], [4, 4]), BYTES)
    with pytest.raises(errors.UnknownError, match="worker 'w9': unknown; known are w0, w1"):
        propose(model_of(2, [0], [1]), Goals(Weight.TIME, 0.0, receivers=frozenset({"w9"})))
