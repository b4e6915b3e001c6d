"""Brings workers within their band by moves, then by exchanges. Each of them lowers the overload."""

from __future__ import annotations

import heapq
from collections import Counter

from rhino_core.planning.state import MOVE_BYTES, State

LOW_TRIED = 8  # least loaded workers, as targets of a virtual node
LOW_EXCHANGED = 3  # of these, in exchanges
EXCHANGED = 16  # virtual nodes of each worker that are tried in exchanges
EXCHANGES = 8  # of one worker
LEAST_GAIN = 1e-9
LEAST_PART = 0.02  # of a worker's overload that a step gains


Step = tuple[tuple[int, int], ...]  # joint moves of virtual nodes to workers


class Repair:
    """Repairs a plan in the making. `budget`: the most steps."""

    def __init__(self, state: State, budget: int) -> None:
        self._state = state
        self._budget = budget
        self._exchanges = Counter[int]()
        self._low = [(state.height(worker), worker) for worker in state.receivers]  # a heap; entries may be outdated
        heapq.heapify(self._low)

    def run(self) -> None:
        """Relieves the worker furthest beyond its band, until none can be helped or the budget is spent."""
        state = self._state
        heap = [(-state.overload(worker), worker) for worker in state.overloaded()]
        heapq.heapify(heap)
        while heap and self._budget > 0:
            before, worker = heapq.heappop(heap)
            now = state.overload(worker)
            if now <= 0:
                continue
            if now < -before:
                heapq.heappush(heap, (-now, worker))
                continue
            step = self._best_move(worker, now)
            if step is None and self._exchanges[worker] < EXCHANGES:
                step = self._best_exchange(worker, now)
                self._exchanges[worker] += 1
            if step is None:
                continue
            self._budget -= 1
            for node, target in step:
                state.put(node, target)
            for changed in {worker, *(target for _, target in step)}:
                heapq.heappush(heap, (-state.overload(changed), changed))
                if changed in state.receives:
                    heapq.heappush(self._low, (state.height(changed), changed))

    def _lowest(self) -> list[int]:
        """Receivers with the lowest height, the lowest first."""
        state, heap = self._state, self._low
        found: dict[int, float] = {}
        while heap and len(found) < LOW_TRIED:
            height, worker = heapq.heappop(heap)
            now = state.height(worker)
            if worker in found:
                continue
            if now > height:
                heapq.heappush(heap, (now, worker))
            else:
                found[worker] = height
        for worker, height in found.items():
            heapq.heappush(heap, (height, worker))
        return list(found)

    def _best_move(self, origin: int, overload: float) -> Step | None:
        """The move off `origin` with the highest gain for its cost. None if none gains enough.

        Offers are tried in the order of their greatest possible gain for their cost, so the search can end early.
        """
        state, lowest = self._state, [worker for worker in self._lowest() if worker != origin]
        offers: list[tuple[float, int, list[int], float]] = []  # -gain / cost at best, virtual node, targets, relief
        cheapest, enough = float(MOVE_BYTES), _enough(overload)
        for node in state.members(origin):
            relief = overload - state.overload_with(origin, -state.column[node])
            if relief <= LEAST_GAIN or node in state.fixed:
                continue
            if near := self._near(node, origin):
                offers.append((-relief / (cheapest if state.model.owner[node] == origin else 1.0), node, near, relief))
            offers.append((-relief / (cheapest + state.least_copied(node)), node, lowest, relief))
        heapq.heapify(offers)
        best, rank = None, 0.0
        while offers and -offers[0][0] > rank:
            _, node, targets, relief = heapq.heappop(offers)
            weight, home = state.column[node], state.cost(node, origin)
            for target in targets:
                gain = relief + state.overload(target) - state.overload_with(target, weight)
                cost = max(state.cost(node, target) - home, 1.0)
                if gain <= enough or gain / cost <= rank or not state.fits(node, target):
                    continue
                best, rank = ((node, target),), gain / cost
        return best

    def _near(self, node: int, origin: int) -> list[int]:
        """The holders, and its worker in the model."""
        state = self._state
        found = [holder for holder in state.may_hold(node) if holder != origin]
        owner = state.model.owner[node]
        if owner != origin and owner in state.receives:
            found.append(owner)
        return found

    def _best_exchange(self, origin: int, overload: float) -> Step | None:
        """The exchange of two virtual nodes with the highest gain for its cost. One of the workers is among the least
        loaded.
        """
        state, best, rank, enough = self._state, None, 0.0, _enough(overload)
        mine = self._heaviest(origin)
        for target in self._lowest()[:LOW_EXCHANGED]:
            if target == origin:
                continue
            theirs = self._heaviest(target)
            before = overload + state.overload(target)
            for node in mine:
                for other in theirs:
                    change = state.column[other] - state.column[node]
                    after = state.overload_with(origin, change)
                    if after >= overload:
                        continue
                    gain = before - after - state.overload_with(target, -change)
                    if gain <= enough or not self._exchangeable(node, other, origin, target):
                        continue
                    cost = state.cost(node, target) + state.cost(other, origin)
                    cost -= state.cost(node, origin) + state.cost(other, target)
                    if best is None or gain / max(cost, 1.0) > rank:
                        best, rank = ((node, target), (other, origin)), gain / max(cost, 1.0)
        return best

    def _exchangeable(self, node: int, other: int, origin: int, target: int) -> bool:
        state = self._state
        return origin in state.receives and state.fits(node, target) and state.fits(other, origin)

    def _heaviest(self, worker: int) -> list[int]:
        """Its heaviest virtual nodes, and some of the others."""
        members = self._state.members(worker) - self._state.fixed
        column = self._state.column
        if len(members) <= EXCHANGED:
            return sorted(members)
        ordered = sorted(members, key=lambda node: (-column[node], node))
        stride = len(ordered) / EXCHANGED
        return [ordered[int(i * stride)] for i in range(EXCHANGED)]


def _enough(overload: float) -> float:
    """A step with no more gain than this is not made, however cheap it is: it would be chosen before better ones."""
    return max(LEAST_GAIN, LEAST_PART * overload)
