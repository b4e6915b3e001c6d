"""Plans for one weight that keep others within their bands."""

from __future__ import annotations

import random
from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from rhino_core.planning.goals import Goals, Weight
from rhino_core.planning.model import Model, Site
from rhino_core.planning.propose import propose
from tests.rhino_core.planning.models import node, placed_by

BYTES_KEEPING_TIME = Goals({Weight.TIME: 0.1, Weight.BYTES: 0.2}, kept=frozenset({Weight.TIME}))
TIME_KEEPING_BYTES = Goals({Weight.TIME: 0.1, Weight.BYTES: 0.2}, kept=frozenset({Weight.BYTES}))


def model_of(workers: int, owners: Sequence[int], times: Sequence[float], sizes: Sequence[float]) -> Model:
    model, count = Model(), len(owners)
    model.put_workers([Site(f"w{number}") for number in range(workers)])
    loads = {Weight.TIME: times, Weight.ROWS: [1.0] * count, Weight.BYTES: sizes}
    model.put_nodes(
        [node(number) for number in range(count)], [f"w{owner}" for owner in owners], loads, [()] * count, {}
    )
    return model


def peak(model: Model, weight: Weight, placed: dict[int, int]) -> float:
    """The highest load over the mean."""
    loads = [0.0] * len(model.sites)
    for index, value in enumerate(model.columns[weight]):
        loads[placed.get(index, model.owner[index])] += value
    return max(loads) * len(loads) / sum(loads)


def test_bytes_are_evened_out_by_exchanges_while_time_stays() -> None:
    model = model_of(2, [0, 0, 1, 1], [1.0] * 4, [9.0, 9.0, 1.0, 1.0])
    placed = placed_by(propose(model, BYTES_KEEPING_TIME))
    assert peak(model, Weight.BYTES, placed) == 1.0
    assert peak(model, Weight.TIME, placed) == 1.0


def test_nothing_moves_for_bytes_if_that_breaks_the_band_of_time() -> None:
    model = model_of(2, [0, 0, 1], [1.0, 1.0, 2.0], [9.0, 9.0, 1.0])
    assert not propose(model, BYTES_KEEPING_TIME).moves
    assert propose(model, Goals({Weight.BYTES: 0.2})).moves


def test_nothing_moves_for_a_weight_that_is_only_kept() -> None:
    model = model_of(2, [0, 0, 1, 1], [1.0] * 4, [9.0, 9.0, 1.0, 1.0])
    assert not propose(model, TIME_KEEPING_BYTES).moves


def test_time_comes_before_bytes() -> None:
    model = model_of(2, [0, 0, 1], [4.0, 4.0, 1.0], [1.0, 1.0, 9.0])
    placed = placed_by(propose(model, TIME_KEEPING_BYTES))
    assert peak(model, Weight.TIME, placed) < 1.2


def test_a_plan_for_time_leaves_bytes_within_their_band_if_it_can() -> None:
    model = model_of(2, [0, 0, 0, 1], [2.0, 2.0, 2.0, 2.0], [2.0, 3.0, 9.0, 4.0])
    placed = placed_by(propose(model, TIME_KEEPING_BYTES))
    assert peak(model, Weight.TIME, placed) == 1.0
    assert list(placed) in ([0], [1]), "the largest one would put twice as much on one worker as on the other"


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 10**6))
def test_a_more_important_kept_weight_is_never_broken(seed: int) -> None:
    draw = random.Random(seed)
    workers, count = draw.randint(2, 4), draw.randint(4, 16)
    owners = [draw.randrange(workers) for _ in range(count)]
    times, sizes = [[draw.uniform(1, 9) for _ in range(count)] for _ in range(2)]
    model = model_of(workers, owners, times, sizes)
    placed = placed_by(propose(model, BYTES_KEEPING_TIME))
    before = peak(model, Weight.TIME, {})
    assert peak(model, Weight.TIME, placed) <= max(before, 1.1) + 1e-6
    assert peak(model, Weight.BYTES, placed) <= peak(model, Weight.BYTES, {}) + 1e-6
