"""A plan in the making: the state of the model after the moves chosen so far. The model itself stays as it is."""

from __future__ import annotations

import math

from rhino_core.planning.goals import Goals, Weight
from rhino_core.planning.model import Model
from rhino_core.planning.shares import receivers_of, share_of

CROSS_ZONE_PRICE = 4.0  # of a byte copied between zones, if one within a zone costs 1
MOVE_BYTES = 1 << 20  # a move costs as much as copying this many bytes: two moves without copies are no bargain


class State:
    """Loads, room and places during the choice.

    `column`: the weight of each virtual node. `mean`: a worker's share of all of it. `norms`: 1 / the fair share of
    each worker. `limits`: the highest load of each worker within the band; a hot virtual node fits on its own.
    """

    def __init__(self, model: Model, goals: Goals) -> None:
        self.model, self.goals = model, goals
        self.receivers = receivers_of(model, goals)
        self.receives = frozenset(self.receivers)
        share, loose = share_of(model, goals.weight, self.receivers), goals.band == math.inf
        self.mean, self.hot = share.mean, frozenset[int]() if loose else share.hot
        self.column, self.loads = model.columns[goals.weight], list(model.totals[goals.weight])
        # 0: no load at all, or a worker to be emptied
        self.norms = [1 / share.fair if share.fair and site.stays else 0.0 for site in model.sites]
        self.limits = [math.inf if loose else share.fair * (1 + goals.band)] * len(model.sites)
        for node in self.hot:
            self._fit_hot(node, model.owner[node])
        self.room = [site.room_bytes for site in model.sites]
        self.placed: dict[int, int] = {}
        self._members: dict[int, set[int]] = {}
        self.pinned = frozenset(model.node_index[node] for node in goals.pinned if node in model.node_index)
        self._barred = {
            model.node_index[node]: frozenset(model.worker_index[name] for name in names if name in model.worker_index)
            for node, names in goals.barred.items()
            if node in model.node_index
        }
        self.fixed = self.hot | self.pinned  # what repair leaves where it is
        self.zones = [site.zone for site in model.sites]

    def _fit_hot(self, node: int, worker: int) -> None:
        self.limits[worker] = max(self.limits[worker], self.column[node])

    # ------------------------------------------------------------------ places

    def place_of(self, node: int) -> int:
        return self.placed.get(node, self.model.owner[node])

    def members(self, worker: int) -> set[int]:
        return self._members.get(worker, self.model.owned[worker])

    def put(self, node: int, target: int) -> None:
        """Moves the virtual node to `target`, from its worker in this plan."""
        former = self.place_of(node)
        self.loads[former] -= self.column[node]
        self.loads[target] += self.column[node]
        if node in self.hot:
            self._fit_hot(node, target)
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
        """The worker's load over its share."""
        return self.loads[worker] * self.norms[worker]

    def overload(self, worker: int) -> float:
        """The square of how far the worker is beyond its limit, in shares. 0: within the band."""
        return self.overload_with(worker, 0.0)

    def overload_with(self, worker: int, change: float) -> float:
        """As `overload`, after the load changes by so much."""
        excess = (self.loads[worker] + change - self.limits[worker]) * self.norms[worker]
        return excess * excess if excess > 1e-9 else 0.0

    def overloaded(self) -> list[int]:
        """Workers beyond their limit."""
        return [worker for worker in range(len(self.loads)) if self.overload(worker)]

    def may_hold(self, node: int) -> list[int]:
        """Workers with all of its state that may receive it."""
        return [one for one in self.model.copies[node] if one in self.receives and not self.bars(node, one)]
