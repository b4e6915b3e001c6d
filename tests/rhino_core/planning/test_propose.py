"""Plans: bounds, exactness, goals in their order, bad input. Small ones are compared with every possible placement."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rhino_core import errors
from rhino_core.planning.goals import ORDER, Goals, Weight
from rhino_core.planning.model import Load, Model, Site
from rhino_core.planning.propose import explain, explain_all, propose, score
from rhino_core.planning.state import State
from tests.rhino_core.planning.models import loads_after, model_of, node, placements, small_models

TIME = Goals({Weight.TIME: 0.0})
COUNT = Goals({Weight.COUNT: 0.0})


def cost_of(model: Model, goals: Goals, placed: dict[int, int]) -> float:
    state = State(model, goals)
    return sum(state.cost(index, worker) for index, worker in placed.items())


@settings(deadline=None, max_examples=60)
@given(small_models(equal=True))
def test_with_equal_weights_no_placement_is_as_even_for_less(model: Model) -> None:
    plan = propose(model, COUNT)
    even = sorted(loads_after(model, COUNT, dict(plan.placed)))
    assert even[-1] - even[0] <= 1
    costs = [
        cost_of(model, COUNT, placed)
        for placed in placements(model)
        if sorted(loads_after(model, COUNT, placed)) == even
    ]
    assert cost_of(model, COUNT, dict(plan.placed)) == pytest.approx(min(costs))
    assert plan.certificate.bounds[Weight.COUNT].gap == pytest.approx(0)


@settings(deadline=None, max_examples=60)
@given(small_models(homeless=True))
def test_the_lower_bounds_hold_for_every_placement(model: Model) -> None:
    plan = propose(model, TIME)
    bound = plan.certificate.bounds[Weight.TIME]
    peaks = [max(loads_after(model, TIME, placed)) for placed in placements(model)]
    assert bound.lower <= min(peaks) + 1e-9
    assert min(peaks) - 1e-9 <= bound.peak <= min(peaks) + max(model.columns[Weight.TIME])
    assert bound.peak == pytest.approx(max(loads_after(model, TIME, dict(plan.placed))))
    state = State(model, TIME)
    within = [
        sum(state.lacks(index, worker) for index, worker in placed.items())
        for placed in placements(model)
        if all(
            load <= limit + 1e-9 for load, limit in zip(loads_after(model, TIME, placed), state.limits[0], strict=True)
        )
    ]
    assert plan.certificate.copied_lower <= min(within, default=math.inf) + 1e-6


@settings(deadline=None, max_examples=60)
@given(small_models(homeless=True))
def test_no_plan_is_worse_than_staying_and_its_score_is_what_it_says(model: Model) -> None:
    goals = Goals()
    before = {weight: list(loads) for weight, loads in model.totals.items()}
    plan = propose(model, goals)
    after, stayed = score(model, plan.placed, goals), score(model, {}, goals)
    assert after.homeless == 0
    assert (after.homeless, after.excess[0]) <= (stayed.homeless, stayed.excess[0] + 1e-9)
    assert after.moves == len(plan) == len(list(plan.moves))
    assert after.copied_bytes == pytest.approx(plan.certificate.copied_bytes)
    assert before == model.totals, "the model was changed"


@settings(deadline=None, max_examples=100)
@given(small_models(), st.frozensets(st.integers(0, 5)))
def test_pinned_virtual_nodes_stay_and_the_others_make_the_best_of_it(model: Model, numbers: frozenset[int]) -> None:
    goals = Goals({Weight.TIME: 0.0}, pinned=frozenset(map(node, numbers)))
    plan = propose(model, goals)
    assert not plan.placed.keys() & numbers
    peak = max(loads_after(model, goals, dict(plan.placed)))
    assert peak <= max(loads_after(model, goals, {})) + 1e-9
    best = min(max(loads_after(model, goals, placed)) for placed in placements(model) if not placed.keys() & numbers)
    assert peak <= best + max(model.columns[Weight.TIME])


@settings(deadline=None, max_examples=100)
@given(small_models(), st.integers(0, 5), st.integers(0, 2))
def test_no_virtual_node_goes_where_it_is_barred(model: Model, number: int, worker: int) -> None:
    goals = Goals({Weight.TIME: 0.0}, barred={node(number): frozenset({f"w{worker}", "unknown"})})
    plan = propose(model, goals)
    assert plan.placed.get(number) != worker
    peak = max(loads_after(model, goals, dict(plan.placed)))
    best = min(max(loads_after(model, goals, placed)) for placed in placements(model) if placed.get(number) != worker)
    assert peak <= best + max(model.columns[Weight.TIME])


def test_a_virtual_node_goes_to_the_next_best_worker_where_the_best_is_barred() -> None:
    model = model_of(3, [0, 0, 1, 2], [3.0, 3.0, 1.0, 2.0])
    goals = Goals({Weight.TIME: 0.3}, pinned=frozenset({node(0)}), barred={node(1): frozenset({"w1"})})
    assert propose(model, goals).placed[1] == 2


def test_a_worker_with_a_pinned_virtual_node_gives_away_its_others() -> None:
    model = model_of(2, [0, 0, 0, 1], [5.0, 1.0, 1.0, 3.0])
    assert propose(model, Goals({Weight.TIME: 0.1}, pinned=frozenset({node(0)}))).placed == {1: 1, 2: 1}


def test_of_two_hot_virtual_nodes_the_one_that_is_not_pinned_leaves() -> None:
    for pinned in (0, 1):
        model = model_of(3, [0, 0, 1, 2], [9.0, 8.0, 1.0, 1.0])
        plan = propose(model, Goals({Weight.TIME: 0.1}, pinned=frozenset({node(pinned)})))
        assert 1 - pinned in plan.placed
        assert pinned not in plan.placed


def test_a_model_kept_by_events_equals_one_made_anew() -> None:
    model, chance = model_of(4, [n % 4 for n in range(40)], [1.0 + n for n in range(40)]), random.Random(7)
    for _ in range(300):
        which = node(chance.randrange(40))
        match chance.randrange(3):
            case 0:
                model.move(which, f"w{chance.randrange(4)}")
            case 1:
                model.weigh(which, Load(time_s=chance.random()))
            case _:
                model.hold(which, (f"w{chance.randrange(4)}",), {f"w{chance.randrange(4)}": 5.0})
    model.remove_node(node(3))
    model.remove_worker("w2")
    for weight in ORDER:
        for worker, site in enumerate(model.sites):
            mine = math.fsum(model.columns[weight][index] for index in model.owned[worker])
            assert model.totals[weight][worker] == pytest.approx(mine if site else 0, abs=1e-6)
    assert model.homeless == {i for i, n in enumerate(model.nodes) if n is not None and model.owner[i] < 0}
    assert propose(model, Goals()).placed.keys() >= model.homeless


@given(st.lists(st.tuples(st.integers(0, 3), st.floats(0, 1e9), st.integers(0, 9), st.lists(st.integers(0, 3)))))
def test_many_virtual_nodes_at_once_are_the_same_as_one_after_the_other(
    drawn: list[tuple[int, float, int, list[int]]],
) -> None:
    once, each = model_of(4, [1, 2], [5.0, 6.0]), model_of(4, [1, 2], [5.0, 6.0])
    nodes = [node(number) for number in range(2, 2 + len(drawn))]
    owners, copies = [f"w{found[0]}" for found in drawn], [tuple(f"w{w}" for w in found[3]) for found in drawn]
    loads: dict[Weight, list[float]] = {Weight.TIME: [d[1] for d in drawn], Weight.BYTES: [d[2] for d in drawn]}
    once.put_nodes(nodes, owners, loads, copies)
    for place, (_, seconds, size, _) in zip(zip(nodes, owners, copies, strict=True), drawn, strict=True):
        each.put_node(*place[:2], Load(seconds, bytes=size), place[2])
    assert once == each


@pytest.mark.parametrize(
    ("nodes", "owner", "value", "said"),
    [
        ((0, 4), "w0", 1.0, "has already"),
        ((4, 4), "w0", 1.0, "has already"),
        ((4, 5), "w9", 1.0, "'w9': unknown"),
        ((4, 5), "w0", -1.0, "time of virtual nodes"),
        ((4, 5), "w0", math.inf, "time of virtual nodes"),
        ((4, 5), "w0", math.nan, "time of virtual nodes"),
    ],
)
def test_many_virtual_nodes_are_refused_together(nodes: tuple[int, int], owner: str, value: float, said: str) -> None:
    model, before = model_of(2, [0], [1.0]), model_of(2, [0], [1.0])
    with pytest.raises(errors.RhinoError, match=said):
        model.put_nodes([node(n) for n in nodes], ["w0", owner], {Weight.TIME: [1.0, value]}, [(), ()])
    assert model == before


def test_every_weight_is_within_its_own_band_at_the_scale_of_a_real_cluster() -> None:
    chance, model = random.Random(1), Model()
    for number in range(50):
        model.put_worker(Site(f"w{number}", zone=f"z{number % 3}"))
    for number in range(5000):
        time_s = chance.lognormvariate(0, 1)
        rows, size = time_s * chance.lognormvariate(0, 0.5), time_s * 1e6 * chance.lognormvariate(0, 0.7)
        model.put_node(node(number), None, Load(time_s, rows, size))
    goals = Goals(dict.fromkeys(ORDER, 0.05) | {Weight.TIME: 0.01})
    plan = propose(model, goals)
    assert plan.certificate.bounds[Weight.TIME].gap <= 0.0101
    assert all(bound.peak / bound.mean <= 1.0501 for bound in plan.certificate.bounds.values())


def test_holders_are_preferred_and_what_nobody_holds_stays_within_its_zone() -> None:
    model = model_of(3, [0, 0, 0, 0, 2], [1] * 5, [[1], [], [], [], []])
    for number, zone in enumerate(("north", "north", "south")):
        model.put_worker(Site(f"w{number}", zone=zone))
    plan = propose(model, COUNT)
    moves = {move.node.partition: move.target for move in plan.moves}
    assert moves[0] == "w1"
    assert list(moves.values()) == ["w1", "w1"]
    assert explain(plan, COUNT, 0) == ("the only other holder", 2.4, 0.0, 0.0)
    assert score(model, plan.placed, COUNT)[2:] == (0, 1 << 20, 2)


def test_a_virtual_node_heavier_than_a_share_is_named_and_the_others_leave_it() -> None:
    model = model_of(3, [0, 0, 0, 1, 2], [10, 1, 1, 1, 1])
    plan = propose(model, Goals({Weight.TIME: 0.05}))
    assert {move.node.partition for move in plan.moves} == {1, 2}
    assert plan.certificate.hot == (node(0),)
    assert plan.certificate.bounds[Weight.TIME].gap == pytest.approx(0)
    assert plan.notes == (
        "virtual node 0/0 of job job-a has 2.14 x a worker's share of time: keys are not split, so the others leave "
        "its worker",
    )


def test_two_hot_virtual_nodes_part() -> None:
    model = model_of(4, [0, 0, 1, 2, 3], [10, 9, 1, 1, 1])
    plan = propose(model, Goals({Weight.TIME: 0.05}))
    assert max(loads_after(model, TIME, dict(plan.placed))) == 10


def test_capacity_gives_a_worker_more_and_infinite_bands_move_only_what_must_leave() -> None:
    model = model_of(2, [0] * 30, [1.0] * 30)
    model.put_worker(Site("w1", capacity=2.0))
    plan = propose(model, Goals({Weight.TIME: 0.01}))
    assert loads_after(model, TIME, dict(plan.placed)) == [10, 20]
    model.put_worker(Site("w0", stays=False, takes=False))
    model.put_worker(Site("w2"))
    goals = Goals({Weight.BYTES: math.inf})
    drained = propose(model, goals)
    assert len(drained) == 30
    assert {reason.why.partition(":")[0] for reason in explain_all(drained, goals).values()} == {
        "no holder of a replica is free"
    }


def test_what_fits_nowhere_and_what_is_not_known_is_refused_by_name() -> None:
    model = model_of(2, [0, 0], [4, 4])
    model.put_worker(Site("w0", stays=False, takes=False))
    model.put_worker(Site("w1", room_bytes=5 << 20))
    with pytest.raises(errors.NoSpaceError, match=r"virtual node 0/1 .* fits on no other worker of w1: add workers"):
        propose(model, Goals())
    model.put_worker(Site("w1", stays=False, takes=False))
    with pytest.raises(errors.PreconditionError, match="no worker may keep virtual nodes"):
        propose(model, Goals())
    model.put_worker(Site("w1"))
    with pytest.raises(errors.UnknownError, match="worker 'w9': unknown; known are w0, w1"):
        propose(model, Goals(receivers=frozenset({"w9"})))
    model.put_node(node(7), "w1", Load(time_s=1.0, bytes=3.0))
    with pytest.raises(errors.PreconditionError, match=r"rows of 1 virtual nodes is not known \(0/7 of job job-a\)"):
        propose(model, Goals())
    assert propose(model, TIME)


def test_a_worker_without_a_zone_among_others_with_one_is_noted() -> None:
    model = model_of(2, [0, 1], [1, 1])
    model.put_worker(Site("w0", zone="north"))
    assert propose(model, TIME).notes == ("workers w1 have no zone, others have: copies to them count as near",)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"bands": {}}, "goals without a weight"),
        ({"bands": {Weight.TIME: -0.1}}, "band -0.1 of time"),
        ({"bands": {Weight.TIME: math.nan}}, "band nan of time"),
        ({"cross_zone_price": 0.5}, "price 0.5"),
        ({"move_bytes": 0}, "cost 0 of a move"),
        ({"receivers": frozenset()}, "receivers: name at least one"),
    ],
)
def test_contradicting_goals_are_refused(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(errors.InvalidRequestError, match=said):
        Goals(**wrong)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"capacity": 0}, "capacity 0"),
        ({"capacity": math.inf}, "capacity inf"),
        ({"room_bytes": -1}, "room of -1"),
        ({"stays": False}, "may not stay"),
    ],
)
def test_impossible_workers_are_refused(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(errors.InvalidRequestError, match=said):
        Site("w1", **wrong)


def test_impossible_weights_and_unknown_names_are_refused() -> None:
    model = model_of(1, [0], [1])
    with pytest.raises(errors.InvalidRequestError, match="time -1 of"):
        model.weigh(node(0), Load(time_s=-1))
    with pytest.raises(errors.UnknownError, match="virtual node 0/9 of job job-a"):
        model.remove_node(node(9))
    with pytest.raises(errors.UnknownError, match="'w9'"):
        model.move(node(0), "w9")
