"""Places many virtual nodes without a worker, in rounds. Each round gives one to each worker that lags behind.

A round is about one weight, or about the difference between two: the worker with least of it receives the virtual node
with most of it. Differences matter: a worker with many bytes and little time needs virtual nodes of the opposite kind.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from operator import mul, sub

from rhino_core.planning.goals import Weight
from rhino_core.planning.state import State

LEAST_TAKING = 4  # at least one of so many workers takes part in a round
IN_BAND = 0.6  # the part of a band that rounds use up; the rest is for repair
LAG = 0.1  # parts of a share by which a worker may always be above the lowest one
MOST_AT_ONCE = 16  # virtual nodes that a worker with more capacity than others receives in a round
LATE = 0.9  # after this part of the pool, balance counts relative to the bands
NARROWEST, WIDEST = 0.001, 1.0  # bands count as if they were within these


class Rounds:
    """Rounds over a pool of virtual nodes, the largest first. Values and loads are parts of a worker's share.

    Values are in the order of the pool, loads in that of the receivers. A weight without a band is left out.
    """

    def __init__(self, state: State, pool: Sequence[int]) -> None:
        self._state, self._pool = state, pool
        self._used = used = _balanced(state)
        uneven = [place for place, p in enumerate(used) if state.weights[p] is not Weight.COUNT]
        self._pairs = list(itertools.combinations(uneven, 2))
        self._bands = [min(max(state.goals.bands[state.weights[p]], NARROWEST), WIDEST) for p in used]
        scales = [1 / state.shares[p].fair for p in used]
        columns = [state.columns[p] for p in used]
        self._values = [[column[n] * scale for n in pool] for column, scale in zip(columns, scales, strict=True)]
        capacity = [1.0 if site is None else site.capacity for site in state.model.sites]
        self._parts = [1 / capacity[worker] for worker in state.receivers]  # of a value, on that worker
        self._alike = set(self._parts) <= {1.0}
        largest = max(self._parts, default=1.0)  # of the smallest worker
        self._times = [min(max(round(largest / part), 1), MOST_AT_ONCE) for part in self._parts]
        self._pool_level = sum(map(sum, self._values)) / max(len(self._parts), 1)  # for each worker
        self._loads = [[state.loads[p][w] * state.norms[p][w] for w in state.receivers] for p in used]

    @staticmethod
    def possible(state: State) -> bool:
        """Whether there is a weight to balance, and all virtual nodes may go everywhere."""
        return bool(_balanced(state)) and not state.goals.barred

    def run(self) -> list[int]:
        """Places all. Returns those for which no worker has room."""
        state, pool, left, position = self._state, self._pool, list[int](), 0
        sizes, room = state.model.columns[Weight.BYTES], state.room
        limited = any(room[worker] < math.inf for worker in state.receivers)
        nodes, targets = list[int](), list[int]()
        while position < len(pool):
            taking = self._taking(position)
            count = min(len(taking), len(pool) - position)
            order, taking = self._matched(position, count, taking)
            workers = list(map(state.receivers.__getitem__, taking))
            chunk = list(map(pool[position : position + count].__getitem__, order))
            if limited:
                fits = [sizes[node] <= room[worker] for node, worker in zip(chunk, workers, strict=True)]
                left += [node for node, fit in zip(chunk, fits, strict=True) if not fit]
                chunk, workers, order, taking = (
                    [value for value, fit in zip(column, fits, strict=True) if fit]
                    for column in (chunk, workers, order, taking)
                )
                for node, worker in zip(chunk, workers, strict=True):
                    room[worker] -= sizes[node]
            self._add(position, count, order, taking)
            nodes += chunk
            targets += workers
            position += count
        state.put_all(nodes, targets, {p: self._loads_of(p) for p in self._used})
        return left

    def _loads_of(self, position: int) -> dict[int, float]:
        fair = self._state.shares[position].fair
        levels = zip(self._state.receivers, self._parts, self._loads[self._used.index(position)], strict=True)
        return {worker: level * fair / part for worker, part, level in levels}

    def _taking(self, position: int) -> list[int]:
        """The participants: those within their shares, and not above the lowest one's part if all get the same."""
        loads, every = self._loads, range(len(self._parts))
        bars = [1 + IN_BAND * band for band in self._bands]
        found: Sequence[int] = every
        for column, top in zip(loads, bars, strict=True):
            found = [place for place in found if column[place] <= top]
        levels = list(map(sum, zip(*loads, strict=True))) if len(loads) > 1 else loads[0]
        coming = (1 - position / len(self._pool)) * self._pool_level
        lowest = min(map(levels.__getitem__, found), default=0.0) + max(coming, LAG * len(loads))
        found = [place for place in found if levels[place] <= lowest]
        least = max(len(levels) // LEAST_TAKING, 1)
        if len(found) >= least:
            return found if self._alike else [place for place in found for _ in range(self._times[place])]
        over = [[max(load - top, 0.0) for load in column] for column, top in zip(loads, bars, strict=True)]
        highest = list(map(max, *over)) if len(over) > 1 else over[0]
        return sorted(every, key=list(zip(highest, levels, strict=True)).__getitem__)[:least]

    def _matched(self, position: int, count: int, taking: list[int]) -> tuple[list[int], list[int]]:
        """The next virtual nodes, by offset, and their receivers, in the same order."""
        there = [list(map(column.__getitem__, taking)) for column in self._loads]
        late = position > LATE * len(self._pool)
        spreads = [
            ((max(column) - min(column)) / (band if late else 1.0), column, first, -1)
            for first, (column, band) in enumerate(zip(there, self._bands, strict=True))
        ]
        for first, second in () if late else self._pairs:
            column = list(map(sub, there[first], there[second]))
            spreads.append((max(column) - min(column), column, first, second))
        _, keys, first, second = max(spreads, key=lambda spread: spread[0])
        lowest = sorted(range(len(taking)), key=keys.__getitem__)[:count]
        values = self._values[first][position : position + count]
        if second >= 0:
            values = list(map(sub, values, self._values[second][position : position + count]))
        return sorted(range(count), key=values.__getitem__, reverse=True), [taking[place] for place in lowest]

    def _add(self, position: int, count: int, order: list[int], taking: list[int]) -> None:
        for loads, values in zip(self._loads, self._values, strict=True):
            chunk = values[position : position + count]
            added = map(chunk.__getitem__, order)
            if not self._alike:
                added = map(mul, added, map(self._parts.__getitem__, taking))
            for place, value in zip(taking, added, strict=True):
                loads[place] += value


def _balanced(state: State) -> list[int]:
    """Positions of the weights with a band and any load."""
    return [
        p
        for p, (weight, share) in enumerate(zip(state.weights, state.shares, strict=True))
        if share.fair and state.goals.bands[weight] < math.inf
    ]
