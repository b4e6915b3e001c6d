"""Copies by correlation of loads: what always holds, how near to the best that is, and planted bugs."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Sequence

import pytest

from rhino_core.errors import InvalidRequestError
from rhino_core.planning import correlation
from rhino_core.planning.correlation import Copies, Costs, Histories, allocate, improve


def small(seed: int, *, copies: int = 1, slack: float = math.inf, nodes: int = 5, workers: int = 4) -> Costs:
    """Virtual nodes that follow one of two opposite tides, with noise."""
    chance = random.Random(seed)
    tides = [[math.sin(t) + 1.5 for t in range(8)], [1.5 - math.sin(t) for t in range(8)]]
    histories = [
        [size * (value + chance.random()) for value in chance.choice(tides)]
        for size in (chance.uniform(0.5, 3) for _ in range(nodes))
    ]
    owners = [chance.randrange(workers) for _ in range(nodes)]
    others = [[chance.random() for _ in range(8)] for _ in range(workers)]
    candidates = [[w for w in range(workers) if w != worker] for worker in range(workers)]
    return Costs(Histories(histories, owners, others, candidates, copies, slack))


def choices(costs: Costs) -> list[list[Copies]]:
    """For each virtual node all ways to place its copies."""
    histories = costs.histories
    return [list(itertools.combinations(histories.candidates[owner], histories.copies)) for owner in histories.owners]


def filled(costs: Costs, placed: Sequence[Copies]) -> list[float]:
    found = [0.0] * len(costs.histories.others)
    for node, workers in enumerate(placed):
        for worker in workers:
            found[worker] += costs.loads[node]
    return found


def check(costs: Costs, placed: Sequence[Copies]) -> None:
    for node, workers in enumerate(placed):
        assert len(set(workers)) == len(workers) == costs.histories.copies
        assert costs.histories.owners[node] not in workers


@pytest.mark.parametrize("copies", [1, 2])
def test_without_a_limit_no_placement_is_better(copies: int) -> None:
    for seed in range(10):
        costs = small(seed, copies=copies, nodes=4)
        placed = allocate(costs)
        check(costs, placed)
        best = min(costs.score(found) for found in itertools.product(*choices(costs)))
        assert costs.score(placed) == pytest.approx(best, abs=1e-9)


def gap(seed: int, slack: float) -> float | None:
    """By how much the best placement within the limit is better. None if there is none, or none was found."""
    costs = small(seed, slack=slack)
    fitting = [
        found for found in itertools.product(*choices(costs)) if max(filled(costs, found)) <= costs.limit * (1 + 1e-9)
    ]
    placed = allocate(costs)
    check(costs, placed)
    if not fitting or max(filled(costs, placed)) > costs.limit * (1 + 1e-9):
        return None
    found = costs.score(placed) - min(costs.score(one) for one in fitting)
    assert found >= -1e-9, "better than all"
    return found


def test_with_a_limit_it_is_near_the_best_of_all_placements() -> None:
    gaps = [found for seed in range(40) if (found := gap(seed, 1.0)) is not None]
    assert len(gaps) > 30
    assert sum(gaps) / len(gaps) <= 0.02
    assert sum(found < 1e-9 for found in gaps) > 0.7 * len(gaps)


def test_the_first_regret_decides_and_not_the_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted bug: copies are placed by number."""
    right = [gap(seed, 1.0) or 0.0 for seed in range(40)]
    monkeypatch.setattr(correlation, "_regret", lambda levels, level: 0.0)
    assert sum(gap(seed, 1.0) or 0.0 for seed in range(40)) > 1.5 * sum(right)


def test_the_optimum_of_the_paper() -> None:
    """Figure 6: operator 1 on node 1, operator 2 on node 2, the load goes from the one to the other."""
    falling, rising = [10.0 - t for t in range(10)], [float(t) for t in range(10)]
    owners = [1] * 10 + [2] * 10
    steady = [[0.7 * 10] * 10, [0.0] * 10, [0.7 * 10] * 10]
    costs = Costs(Histories([falling] * 10 + [rising] * 10, owners, steady, [[0, 1, 2]] * 3))
    assert allocate(costs) == [(2,)] * 10 + [(1,)] * 10
    assert costs.score(allocate(costs)) == pytest.approx(-1)


def test_without_a_change_of_load_copies_are_spread_by_load() -> None:
    costs = Costs(Histories([[1.0] * 4] * 12, [0] * 12, [[0.0] * 4] * 4, [[0, 1, 2, 3]] * 4))
    assert filled(costs, allocate(costs)) == [0, 4, 4, 4]


def test_only_candidates_get_copies() -> None:
    costs = small(1, nodes=12)
    narrow = [[(worker + 1) % 4] for worker in range(4)]
    histories = costs.histories
    found = allocate(Costs(Histories(histories.nodes, histories.owners, histories.others, narrow)))
    assert found == [((owner + 1) % 4,) for owner in histories.owners]


@pytest.mark.parametrize("sigma", [0.0, 0.1, 5.0])
def test_copies_move_until_the_score_is_within_sigma(sigma: float) -> None:
    for seed in range(20):
        costs, chance = small(seed, nodes=12), random.Random(seed)
        placed = [chance.choice(ways) for ways in choices(costs)]
        moves = improve(costs, placed, [1.0] * 12, sigma, budget=100.0)
        after = list(placed)
        for move in moves:
            assert after[move.node] == (move.origin,)
            after[move.node] = (move.target,)
        check(costs, after)
        least = costs.score(allocate(costs))
        assert costs.score(after) <= least + sigma + 1e-9
        assert bool(moves) == (costs.score(placed) > least + sigma + 1e-9)


def test_no_more_bytes_are_copied_than_allowed() -> None:
    costs, chance = small(3, nodes=12), random.Random(3)
    placed, sizes = [chance.choice(ways) for ways in choices(costs)], [float(n + 1) for n in range(12)]
    everything = improve(costs, placed, sizes, 0.0, budget=1e9)
    for budget in (0.0, 5.0, 20.0):
        moves = improve(costs, placed, sizes, 0.0, budget)
        assert sum(sizes[move.node] for move in moves) <= budget
        assert len(moves) < len(everything)


def test_what_makes_no_sense_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match="different lengths"):
        Histories([[1.0]], [0], [[1.0, 2.0], [1.0, 2.0]], [[1], [0]])
    with pytest.raises(InvalidRequestError, match="0 copies with slack"):
        Histories([[1.0]], [0], [[1.0], [1.0]], [[1], [0]], copies=0)
    with pytest.raises(InvalidRequestError, match="virtual node 0 on worker 0: 1 copies need as many other candidates"):
        Histories([[1.0]], [0], [[1.0]], [[0]])


def test_correlations_within_the_tolerance_count_as_equal() -> None:
    """Otherwise noise would put all copies on one worker."""
    chance = random.Random(1)
    steady = [[1.0] * 8, *([chance.uniform(0.99, 1.01) for _ in range(8)] for _ in range(3))]
    rising = [[float(t) for t in range(8)]] * 12
    noisy = Costs(Histories(rising, [0] * 12, steady, [[1, 2, 3]] * 4))
    assert max(filled(noisy, allocate(noisy))) == 12 * 3.5
    tolerant = Costs(Histories(rising, [0] * 12, steady, [[1, 2, 3]] * 4, tolerance=2.0))
    assert filled(tolerant, allocate(tolerant))[1:] == [4 * 3.5] * 3
