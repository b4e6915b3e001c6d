"""Splits moves between workers into matchings: a bipartite multigraph's edges in as few colours as possible."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

Pair = tuple[str, str]


def load_libraries() -> None:
    """Imports what `matchings` needs, which takes most of a second: an event loop has that done by another thread."""
    import numpy  # noqa: F401
    import scipy.optimize  # noqa: F401


def matchings(counts: Mapping[Pair, int]) -> list[list[Pair]]:
    """`counts` of edges (origin, target), in matchings: in each, no origin and no target stands twice.

    There are as many matchings as the greatest degree (König): the graph is made regular with edges that mean
    nothing, and a regular bipartite graph always has a perfect matching to take out.
    """
    import numpy as np  # here: see `load_libraries`
    from scipy.optimize import linear_sum_assignment

    left, right = Counter[str](), Counter[str]()
    for (origin, target), count in counts.items():
        left[origin] += count
        right[target] += count
    degree = max([*left.values(), *right.values()], default=0)
    rows, columns = sorted(left), sorted(right)
    size = max(len(rows), len(columns))
    real = [[counts.get((row, column), 0) for column in columns] + [0] * (size - len(columns)) for row in rows]
    real += [[0] * size for _ in range(size - len(rows))]
    blank = _padding([degree - sum(row) for row in real], [degree - sum(column) for column in zip(*real, strict=True)])
    found = []
    for _ in range(degree):
        # An edge that is there is worth more than none; of those, a real one is worth a little more than a blank.
        worth = np.where(np.array(real) > 0, size + 1, np.where(np.array(blank) > 0, size, -size * size))
        pairs = zip(*linear_sum_assignment(worth, maximize=True), strict=True)
        taken = [(int(row), int(column)) for row, column in pairs]
        found.append([(rows[r], columns[c]) for r, c in taken if real[r][c] > 0])
        for r, c in taken:
            (real if real[r][c] > 0 else blank)[r][c] -= 1
    return found


def _padding(rows: list[int], columns: list[int]) -> list[list[int]]:
    """Edges that bring every vertex to the same degree: what rows lack goes to columns that lack some."""
    blank = [[0] * len(columns) for _ in rows]
    row = column = 0
    while row < len(rows) and column < len(columns):
        edges = min(rows[row], columns[column])
        blank[row][column] += edges
        rows[row] -= edges
        columns[column] -= edges
        if rows[row] == 0:
            row += 1
        else:
            column += 1
    return blank
