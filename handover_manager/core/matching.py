"""Splits moves between workers into matchings: a bipartite multigraph's edges in as few colours as possible."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import numpy as np
from scipy.optimize import linear_sum_assignment

Pair = tuple[str, str]


def matchings(counts: Mapping[Pair, int]) -> list[list[Pair]]:
    """`counts` of edges (origin, target), in matchings: in each, no origin and no target stands twice.

    There are as many matchings as the greatest degree (König): the graph is made regular with edges that mean
    nothing, and a regular bipartite graph always has a perfect matching to take out.
    """
    left, right = Counter[str](), Counter[str]()
    for (origin, target), count in counts.items():
        left[origin] += count
        right[target] += count
    degree = max([*left.values(), *right.values()], default=0)
    rows, columns = sorted(left), sorted(right)
    size = max(len(rows), len(columns))
    real = np.zeros((size, size), dtype=np.int64)
    for (origin, target), count in counts.items():
        real[rows.index(origin), columns.index(target)] = count
    blank = _padding(degree - real.sum(axis=1), degree - real.sum(axis=0))
    found = []
    for _ in range(degree):
        # An edge that is there is worth more than none; of those, a real one is worth a little more than a blank.
        worth = np.where(real > 0, size + 1, np.where(blank > 0, size, -size * size))
        taken = list(zip(*linear_sum_assignment(worth, maximize=True), strict=True))
        found.append([(rows[r], columns[c]) for r, c in taken if real[r, c] > 0])
        for r, c in taken:
            (real if real[r, c] > 0 else blank)[r, c] -= 1
    return found


def _padding(rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Edges that bring every vertex to the same degree: what rows lack goes to columns that lack some."""
    rows, columns = rows.copy(), columns.copy()
    blank = np.zeros((len(rows), len(columns)), dtype=np.int64)
    row = column = 0
    while row < len(rows) and column < len(columns):
        edges = min(rows[row], columns[column])
        blank[row, column] += edges
        rows[row] -= edges
        columns[column] -= edges
        if rows[row] == 0:
            row += 1
        else:
            column += 1
    return blank
