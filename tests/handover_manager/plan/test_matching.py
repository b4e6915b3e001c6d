"""Matchings of moves: legal, as few as possible, each as full as possible; beside scipy's solver."""

from __future__ import annotations

import itertools
import random
import time
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from handover_manager.plan.matching import Assignment, Pair, matchings

names = st.sampled_from(["a", "b", "c", "d", "e"])
counts = st.dictionaries(st.tuples(names, names), st.integers(0, 4), max_size=12)
sparse = st.integers(1, 5).flatmap(
    lambda size: st.lists(
        st.dictionaries(st.integers(0, size - 1), st.integers(0, 6), max_size=size), min_size=size, max_size=size
    )
)


def degree(edges: Counter[Pair]) -> int:
    ends = Counter[tuple[str, str]]()
    for (origin, target), count in edges.items():
        ends["from", origin] += count
        ends["to", target] += count
    return max(ends.values(), default=0)


@settings(deadline=None)
@given(counts)
def test_each_move_is_in_one_matching_and_there_are_as_few_as_the_busiest_worker_has_moves(
    edges: dict[Pair, int],
) -> None:
    found = matchings(edges)
    assert len(found) == degree(Counter(edges))
    assert Counter(itertools.chain(*found)) == Counter(edges)
    for pairs in found:
        assert len({origin for origin, _ in pairs}) == len({target for _, target in pairs}) == len(pairs)


@settings(deadline=None)
@given(counts)
def test_the_busiest_workers_are_in_every_matching(edges: dict[Pair, int]) -> None:
    left = Counter(edges)
    for pairs in matchings(edges):
        before = degree(left)
        left.subtract(pairs)
        assert degree(left) == before - 1


def cheapest(costs: list[dict[int, int]]) -> int | None:
    """By trying all."""
    every = itertools.permutations(range(len(costs)))
    sums = [
        sum(costs[row][column] for row, column in enumerate(order))
        for order in every
        if all(column in costs[row] for row, column in enumerate(order))
    ]
    return min(sums, default=None)


def solved(assignment: Assignment, costs: list[dict[int, int]]) -> int | None:
    try:
        cells = assignment.solve()
    except ValueError:
        return None
    assert sorted(row for row, _ in cells) == sorted(column for _, column in cells) == list(range(len(costs)))
    return sum(costs[row][column] for row, column in cells)


@settings(deadline=None)
@given(sparse)
def test_an_assignment_is_the_cheapest(costs: list[dict[int, int]]) -> None:
    assert solved(Assignment(costs), costs) == cheapest(costs)


@settings(deadline=None)
@given(sparse, st.lists(st.tuples(st.integers(0, 4), st.one_of(st.none(), st.integers(0, 6))), max_size=8))
def test_it_stays_the_cheapest_while_its_edges_become_dearer_or_end(
    costs: list[dict[int, int]], changes: list[tuple[int, int | None]]
) -> None:
    assignment = Assignment(costs)
    expected = cheapest(costs)
    assert solved(assignment, costs) == expected
    for number, more in changes:
        row = number % len(costs)
        column = assignment.column_of[row]
        if expected is None or column is None:
            return
        assignment.raise_cost(row, column, None if more is None else costs[row][column] + more)
        expected = cheapest(costs)
        assert solved(assignment, costs) == expected


@pytest.mark.parametrize("seed", range(20))
def test_matchings_are_as_full_as_those_of_scipys_solver(seed: int) -> None:
    """Each matching has the most moves of all perfect matchings of the remaining padded graph."""
    np = pytest.importorskip("numpy")
    optimize = pytest.importorskip("scipy.optimize")
    chosen = random.Random(seed)
    size = chosen.randint(2, 12)
    square = [[chosen.choice([0, 0, 1, 3]) for _ in range(size)] for _ in range(size)]
    rows = Counter({r: sum(square[r]) for r in range(size)})
    columns = Counter({c: sum(row[c] for row in square) for c in range(size)})
    most = max([*rows.values(), *columns.values()])
    for r, c in itertools.product(range(size), repeat=2):  # makes the graph regular with moves, so nothing is padded
        more = min(most - rows[r], most - columns[c])
        square[r][c] += more
        rows[r] += more
        columns[c] += more
    edges = {(f"o{r:02}", f"t{c:02}"): square[r][c] for r, c in itertools.product(range(size), repeat=2)}
    costs = [{c: chosen.randint(0, 9) for c in range(size)} for _ in range(size)]
    assert all(len(pairs) == size for pairs in matchings(edges))
    dense = np.array([[row[c] for c in range(size)] for row in costs])
    ours = solved(Assignment([dict(row) for row in costs]), costs)
    assert ours == int(dense[optimize.linear_sum_assignment(dense)].sum())


def test_the_moves_of_a_large_cluster_take_seconds() -> None:
    chosen = random.Random(1)
    workers = [f"w{n:03}" for n in range(120)]
    edges = Counter((chosen.choice(workers), chosen.choice(workers[40:])) for _ in range(100_000))
    begun = time.process_time()
    assert len(matchings(edges)) == degree(edges)
    assert time.process_time() - begun < 20
