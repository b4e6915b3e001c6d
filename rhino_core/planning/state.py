"""A plan in the making: the state of the model after the moves chosen so far. The model itself stays as it is."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

from rhino_core.planning.goals import Goals, Weight
from rhino_core.planning.model import Model
from rhino_core.planning.shares import receivers_of, share_of

FIRST = 8.0  # a weight is this many times as important as the next one
CROSS_ZONE_PRICE = 4.0  # of a byte copied between zones, if one within a zone costs 1
MOVE_BYTES = 1 << 20  # a move costs as much as copying this many bytes: two moves without copies are no bargain


class State:
    """Loads, room and places during the choice.

    `weights`: those with a band, the most important first; lists of lists have this order. `norms`: 1 / the fair share
    of each worker. `limits`: the highest load of each worker within its band; a hot virtual node fits on its own.
    """

    def __init__(self, model: Model, goals: Goals) -> None:
        self.model, self.goals = model, goals
        self.receivers = receivers_of(model, goals)
        self.receives = frozenset(self.receivers)
        self.weights: tuple[Weight, ...] = goals.weights
        shares = [share_of(model, weight, self.receivers) for weight in self.weights]
        loose = {weight for weight in self.weights if goals.bands[weight] == math.inf}
        loose |= goals.kept  # nothing moves for them, not even away from a hot virtual node
        self.shares = [replace(share, hot=frozenset()) if share.weight in loose else share for share in shares]
        self.columns = [model.columns[weight] for weight in self.weights]
        self.loads = [list(model.totals[weight]) for weight in self.weights]
        self.norms = [  # 0: no load at all, or a worker to be emptied
            [1 / share.fair if share.fair and site.stays else 0.0 for site in model.sites] for share in self.shares
        ]
        self.limits = [[self._limit(position)] * len(model.sites) for position in range(len(self.weights))]
        for limits, share, column in zip(self.limits, self.shares, self.columns, strict=True):
            for node in share.hot:
                owner = model.owner[node]
                limits[owner] = max(limits[owner], column[node])
        factors = [FIRST**position for position in range(len(self.weights) - 1, -1, -1)]
        self._parts = list(zip(self.loads, self.limits, self.norms, factors, strict=True))
        self.balanced = [position for position, weight in enumerate(self.weights) if weight not in goals.kept]
        self._firm = [position for position, weight in enumerate(self.weights) if weight in goals.firm]
        self.room = [site.room_bytes for site in model.sites]
        self.placed: dict[int, int] = {}
        self._members: dict[int, set[int]] = {}
        self.hot = frozenset().union(*(share.hot for share in self.shares))
        self.pinned = frozenset(model.node_index[node] for node in goals.pinned if node in model.node_index)
        self._barred = {
            model.node_index[node]: frozenset(model.worker_index[name] for name in names if name in model.worker_index)
            for node, names in goals.barred.items()
            if node in model.node_index
        }
        self.fixed = self.hot | self.pinned  # what repair leaves where it is
        self.zones = [site.zone for site in model.sites]

    def _limit(self, position: int) -> float:
        """The highest load within the band of a weight."""
        share, loads = self.shares[position], self.loads[position]
        band = self.goals.bands[share.weight]
        if band == math.inf:
            return math.inf
        if share.weight not in self.goals.kept:
            return share.fair * (1 + band)
        return max(share.mean * (1 + band), *(loads[worker] for worker in share.workers))

    # ------------------------------------------------------------------ places

    def place_of(self, node: int) -> int:
        return self.placed.get(node, self.model.owner[node])

    def members(self, worker: int) -> set[int]:
        return self._members.get(worker, self.model.owned[worker])

    def put(self, node: int, target: int) -> None:
        """Moves the virtual node to `target`, from its worker in this plan."""
        former = self.place_of(node)
        for loads, column, limits, share in zip(self.loads, self.columns, self.limits, self.shares, strict=True):
            loads[former] -= column[node]
            loads[target] += column[node]
            if node in share.hot:
                limits[target] = max(limits[target], column[node])
        self._own(former).discard(node)
        if former in self.receives and former != self.model.owner[node]:
            self.room[former] += self.lacks(node, former)
        self._own(target).add(node)
        if target == self.model.owner[node]:
            self.placed.pop(node, None)
        else:
            self.room[target] -= self.lacks(node, target)
            self.placed[node] = target

    def _own(self, worker: int) -> set[int]:
        found = self._members.get(worker)
        if found is None:
            found = self._members[worker] = set(self.model.owned[worker])
        return found

    # ------------------------------------------------------------------ costs

    def lacks(self, node: int, worker: int) -> float:
        """Bytes of the virtual node missing on the worker."""
        model = self.model
        if worker in model.copies[node] or worker == model.owner[node]:
            return 0.0
        size = model.columns[Weight.BYTES][node]
        partly = model.lacking.get(node)
        return size if partly is None else partly.get(worker, size)

    def crosses(self, node: int, worker: int) -> bool:
        """Whether the missing bytes would come from another zone: nobody in the worker's own zone has them."""
        zone, zones, model = self.zones[worker], self.zones, self.model
        owner = model.owner[node]
        if not zone:
            return False
        return zones[owner] != zone and all(zones[holder] != zone for holder in model.copies[node])

    def cost(self, node: int, worker: int) -> float:
        """The cost of the virtual node there: 0 on its owner in the model, else the bytes and the move."""
        if worker == self.model.owner[node]:
            return 0.0
        lacking = self.lacks(node, worker)
        price = CROSS_ZONE_PRICE if lacking and self.crosses(node, worker) else 1.0
        return MOVE_BYTES + lacking * price

    def least_copied(self, node: int) -> float:
        """The least bytes to copy if the virtual node goes to a worker without all of its state."""
        size, partly = self.model.columns[Weight.BYTES][node], self.model.lacking.get(node)
        if partly is None:
            return size
        return min([size, *(left for worker, left in partly.items() if worker in self.receives)])

    def fits(self, node: int, worker: int) -> bool:
        """Whether the worker has room for the virtual node, and it may go there."""
        if worker == self.model.owner[node]:
            return True
        return not self.bars(node, worker) and self.lacks(node, worker) <= self.room[worker]

    def bars(self, node: int, worker: int) -> bool:
        return node in self._barred and worker in self._barred[node]

    # ------------------------------------------------------------------ balance

    def height(self, worker: int) -> float:
        """The worker's highest load over its share, of all weights to balance."""
        return max([self.loads[position][worker] * self.norms[position][worker] for position in self.balanced])

    def keeps(self, worker: int, changes: Sequence[float]) -> bool:
        """Whether the worker stays within the bands that no move may break, if its loads change by so much."""
        for position in self._firm:
            limit = self.limits[position][worker] * (1 + 1e-9)
            if changes[position] > 0 and self.loads[position][worker] + changes[position] > limit:
                return False
        return True

    def overload(self, worker: int) -> float:
        """How far the worker is beyond its limits: the squares, by importance. 0: within all bands."""
        total = 0.0
        for loads, limits, norms, factor in self._parts:
            excess = (loads[worker] - limits[worker]) * norms[worker]
            if excess > 1e-9:
                total += factor * excess * excess
        return total

    def overload_with(self, worker: int, changes: Iterable[float]) -> float:
        """As `overload`, after the loads change by so much in each weight."""
        total = 0.0
        for (loads, limits, norms, factor), change in zip(self._parts, changes, strict=True):
            excess = (loads[worker] + change - limits[worker]) * norms[worker]
            if excess > 1e-9:
                total += factor * excess * excess
        return total

    def overloaded(self) -> list[int]:
        """Workers beyond a limit."""
        found: set[int] = set()
        for loads, limits, norms in zip(self.loads, self.limits, self.norms, strict=True):
            found.update(
                w
                for w, (load, limit, norm) in enumerate(zip(loads, limits, norms, strict=True))
                if (load - limit) * norm > 1e-9
            )
        return sorted(found)

    def weights_of(self, node: int) -> list[float]:
        return [column[node] for column in self.columns]

    def may_hold(self, node: int) -> list[int]:
        """Workers with all of its state that may receive it."""
        return [one for one in self.model.copies[node] if one in self.receives and not self.bars(node, one)]
