"""Splits moves between workers into matchings: edge colouring of a bipartite multigraph with the fewest colours."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Mapping, Sequence

Pair = tuple[str, str]
Cell = tuple[int, int]  # row (origin), column (target)
REAL, PADDING = 0, 1  # costs of edges: a matching has as few padding edges as possible


class Assignment:
    """A perfect matching of least cost between rows and columns, by shortest augmenting paths.

    Jonker and Volgenant, *A shortest augmenting path algorithm for dense and sparse linear assignment problems*,
    Computing 38, 1987. The potentials stay valid while costs only rise. So the end or a higher cost of a matched edge
    costs one further path, and not a new solution.
    """

    def __init__(self, costs: Sequence[dict[int, int]]) -> None:
        """`costs` has the columns of each row with their costs, 0 or more. There are as many columns as rows."""
        self._costs = costs
        self._row_potentials = [0] * len(costs)
        self._column_potentials = [0] * len(costs)
        self._row_of: list[int | None] = [None] * len(costs)
        self.column_of: list[int | None] = [None] * len(costs)

    def raise_cost(self, row: int, column: int, cost: int | None) -> None:
        """Raises the cost of an edge, or removes it (None). If it is matched, its row is free until `solve`."""
        if cost is None:
            del self._costs[row][column]
        else:
            self._costs[row][column] = cost
        if self.column_of[row] == column:
            self.column_of[row] = self._row_of[column] = None

    def solve(self) -> list[Cell]:
        """Matches all free rows. Returns the whole matching. Raises ValueError if there is no perfect one."""
        for row, column in enumerate(self.column_of):
            if column is None:
                self._augment(row)
        return [(row, column) for row, column in enumerate(self.column_of) if column is not None]

    def _augment(self, start: int) -> None:
        """Dijkstra's algorithm over reduced costs, from the free row `start` to the nearest free column."""
        distances: dict[int, int] = {}
        parents: dict[int, int] = {}
        reached: set[int] = set()
        heap: list[tuple[int, int]] = []
        row: int | None = start
        at = end = 0
        while row is not None:
            base = at - self._row_potentials[row]
            for column, cost in self._costs[row].items():
                distance = base + cost - self._column_potentials[column]
                if column not in reached and distance < distances.get(column, distance + 1):
                    distances[column], parents[column] = distance, row
                    heapq.heappush(heap, (distance, column))
                    if distance == at and self._row_of[column] is None:
                        heap = [(distance, column)]  # no free column is nearer
                        break
            while heap and heap[0][1] in reached:
                heapq.heappop(heap)
            if not heap:
                raise ValueError("there is no perfect matching")
            at, end = heapq.heappop(heap)
            reached.add(end)
            row = self._row_of[end]
        self._row_potentials[start] += at
        for column in reached:
            self._column_potentials[column] -= at - distances[column]
            matched = self._row_of[column]
            if matched is not None:
                self._row_potentials[matched] += at - distances[column]
        self._flip(start, end, parents)

    def _flip(self, start: int, end: int, parents: Mapping[int, int]) -> None:
        """Matches along the path to the free column `end`."""
        column: int | None = end
        while column is not None:
            row = parents[column]
            former = self.column_of[row]
            self._row_of[column], self.column_of[row] = row, column
            column = None if row == start else former


def matchings(counts: Mapping[Pair, int]) -> list[list[Pair]]:
    """Splits `counts` of edges (origin, target) into matchings.

    In a matching each origin and each target occurs at most once. The number of matchings is the greatest degree
    (König). Padding edges make the graph regular. A regular bipartite graph always has a perfect matching. It is then
    removed, as many times as all its edges last.
    """
    origins, targets = Counter[str](), Counter[str]()
    for (origin, target), count in counts.items():
        origins[origin] += count
        targets[target] += count
    degree = max([*origins.values(), *targets.values()], default=0)
    rows, columns = sorted(origins), sorted(targets)
    size = max(len(rows), len(columns))
    row_of, column_of = ({name: i for i, name in enumerate(names)} for names in (rows, columns))
    real = Counter({(row_of[o], column_of[t]): count for (o, t), count in counts.items() if count})
    padding = _padding(
        [degree - origins[name] for name in rows] + [degree] * (size - len(rows)),
        [degree - targets[name] for name in columns] + [degree] * (size - len(columns)),
    )
    costs: list[dict[int, int]] = [{} for _ in range(size)]
    for row, column in sorted(real | padding):
        costs[row][column] = REAL if real[row, column] else PADDING
    assignment, found = Assignment(costs), list[list[Pair]]()
    while len(found) < degree:
        matched = assignment.solve()
        lasting = min(real[cell] or padding[cell] for cell in matched)
        found += [[(rows[r], columns[c]) for r, c in matched if real[r, c]] for _ in range(lasting)]
        for cell in matched:
            left = real if real[cell] else padding
            left[cell] -= lasting
            if not left[cell]:
                assignment.raise_cost(*cell, PADDING if padding[cell] else None)
    return found


def _padding(rows: list[int], columns: list[int]) -> Counter[Cell]:
    """Padding edges for an equal degree of every vertex, between rows and columns short of edges."""
    blank = Counter[Cell]()
    row = column = 0
    while row < len(rows) and column < len(columns):
        edges = min(rows[row], columns[column])
        if edges:
            blank[row, column] = edges
        rows[row] -= edges
        columns[column] -= edges
        if rows[row] == 0:
            row += 1
        else:
            column += 1
    return blank
