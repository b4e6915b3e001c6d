"""Copies on workers of low load at times of high load of their virtual nodes (Madsen & Zhou, CIKM 2015, section 5).

A worker becomes overloaded because the load of its virtual nodes rises. They move cheaply to a worker with a copy. This
worker has room for them if its load falls at the same time, or at least does not rise.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from rhino_core.errors import InvalidRequestError

Copies = tuple[int, ...]  # the workers with the copies of a virtual node


@dataclass(frozen=True, slots=True)
class Histories:
    """The observed loads of workers and virtual nodes. Both are numbered from 0.

    `nodes`: for each virtual node its load in each window. `owners`: its worker. `others`: for each worker in each
    window its load apart from virtual nodes. `candidates`: for each worker the possible holders of copies of its
    virtual nodes. `slack`: a worker may exceed its share of the copies' load by this part; infinity: no limit.
    `tolerance`: correlations with a smaller difference count as equal, and the copy load decides.
    """

    nodes: Sequence[Sequence[float]]
    owners: Sequence[int]
    others: Sequence[Sequence[float]]
    candidates: Sequence[Sequence[int]]
    copies: int = 1
    slack: float = math.inf
    tolerance: float = 1e-9

    def __post_init__(self) -> None:
        if len({len(history) for history in (*self.nodes, *self.others)}) > 1:
            raise InvalidRequestError("load histories of different lengths: give each as many windows as the others")
        if self.copies < 1 or not self.slack >= 0:
            raise InvalidRequestError(f"{self.copies} copies with slack {self.slack}: must be 1 or more, and 0 or more")
        for node, owner in enumerate(self.owners):
            if len(set(self.candidates[owner]) - {owner}) < self.copies:
                raise InvalidRequestError(
                    f"virtual node {node} on worker {owner}: {self.copies} copies need as many other candidates"
                )


class CopyMove(NamedTuple):
    """A copy of the virtual node goes from one worker to another."""

    node: int
    origin: int
    target: int


class Candidate(NamedTuple):
    """A worker for a copy: the correlation of the virtual node's load with its own, from -1 to 1, and less is better.

    `beyond`: its copies stand for more than its share of load, and the slack.
    """

    worker: str
    correlation: float
    beyond: bool = False


@dataclass(frozen=True, slots=True)
class CopyDecision:
    """The reason for a copy on the worker `chosen`, if correlations decided. `at`: monotonic seconds.

    `origin`: the former worker of a moved copy; None: it was a new copy. `other`: the best of the other candidates.
    `error` is the standard error of a correlation of 0. The copy moved because it gained `needed` or more.
    """

    at: float
    chosen: Candidate
    other: Candidate | None
    error: float
    origin: Candidate | None = None
    needed: float = 0.0


class Costs:
    """The cost of each place of a copy: the mean load of the virtual node times its correlation with the worker's."""

    def __init__(self, histories: Histories) -> None:
        self.histories = histories
        self.loads = [math.fsum(history) / len(history) if history else 0.0 for history in histories.nodes]
        totals = [list(history) for history in histories.others]
        for owner, history in zip(histories.owners, histories.nodes, strict=True):
            totals[owner] = list(map(float.__add__, totals[owner], map(float, history)))
        self._workers = [centred(total) for total in totals]
        self._nodes = [centred(history) for history in histories.nodes]
        eligible = {worker for candidates in histories.candidates for worker in candidates}
        self.total = math.fsum(self.loads) * histories.copies
        self.limit = (1 + histories.slack) * self.total / max(len(eligible), 1)

    def correlation(self, node: int, worker: int) -> float:
        """Pearson's, from -1 to 1. 0 if one of the two never changes."""
        return math.fsum(map(float.__mul__, self._nodes[node], self._workers[worker]))

    def of(self, node: int, worker: int) -> float:
        return self.correlation(node, worker) * self.loads[node]

    def score(self, placed: Iterable[Copies]) -> float:
        """From -1 to 1, less is better: the costs of all copies over their loads."""
        costs = [self.of(node, worker) for node, workers in enumerate(placed) for worker in workers]
        return math.fsum(costs) / self.total if self.total else 0.0


def allocate(costs: Costs) -> list[Copies]:
    """Places all copies by Algorithm 3. No copy is on the owner, and no two of a virtual node are on one worker.

    The copy with the greatest loss without its best worker is placed first. If `slack` leaves no worker for a copy, the
    best one exceeds its part.
    """
    histories = costs.histories
    placed: list[list[int]] = [[] for _ in histories.nodes]
    filled = [0.0] * len(histories.others)
    levels = [_levels(costs, node) for node in range(len(histories.nodes))]
    queue = [
        (-_regret(levels[node], 0), node, copy, 0) for node in range(len(levels)) for copy in range(histories.copies)
    ]
    heapq.heapify(queue)
    while queue:
        _, node, copy, level = heapq.heappop(queue)
        last = level >= len(levels[node])
        workers = [w for _, workers in levels[node] for w in workers] if last else levels[node][level][1]
        load = costs.loads[node]
        fitting = [w for w in workers if w not in placed[node] and (last or _fits(filled[w] + load, costs.limit))]
        if not fitting:
            heapq.heappush(queue, (-_regret(levels[node], level + 1), node, copy, level + 1))
            continue
        if last:
            chosen = min(fitting, key=lambda w: (costs.of(node, w), filled[w], w))
        else:
            chosen = min(fitting, key=lambda w: (filled[w], w))
        placed[node].append(chosen)
        filled[chosen] += load
    return [tuple(workers) for workers in placed]


def improve(
    costs: Costs, placed: Sequence[Copies], sizes: Sequence[float], sigma: float, budget: float
) -> list[CopyMove]:
    """Moves of copies to bring the score within `sigma` of a new allocation's score. None if it is already.

    Moves come by falling gain for their bytes. `sizes`: bytes of each virtual node. All moves together copy at most
    `budget` bytes, so the score may stay beyond `sigma`.
    """
    wanted = allocate(costs)
    excess = (costs.score(placed) - costs.score(wanted) - sigma) * costs.total
    filled = [0.0] * len(costs.histories.others)
    for node, workers in enumerate(placed):
        for worker in workers:
            filled[worker] += costs.loads[node]
    offers = sorted(_offers(costs, placed, wanted, sizes))
    moves: list[CopyMove] = []
    progress = True
    while progress and excess > 1e-12:
        progress = False
        for offer in list(offers):
            _, gain, move = offer
            load = costs.loads[move.node]
            if excess <= 1e-12 or sizes[move.node] > budget or not _fits(filled[move.target] + load, costs.limit):
                continue
            offers.remove(offer)
            moves.append(move)
            filled[move.origin] -= load
            filled[move.target] += load
            excess -= gain
            budget -= sizes[move.node]
            progress = True
    return moves


def _offers(
    costs: Costs, placed: Sequence[Copies], wanted: Sequence[Copies], sizes: Sequence[float]
) -> Iterable[tuple[float, float, CopyMove]]:
    """Moves to lower the score, with their gain for a byte (negative, to sort by) and their gain."""
    for node, (here, there) in enumerate(zip(placed, wanted, strict=True)):
        origins = sorted(set(here) - set(there), key=lambda w: (-costs.of(node, w), w))
        targets = sorted(set(there) - set(here), key=lambda w: (costs.of(node, w), w))
        for origin, target in zip(origins, targets, strict=False):
            gain = costs.of(node, origin) - costs.of(node, target)
            if gain > 0:
                yield -gain / max(sizes[node], 1.0), gain, CopyMove(node, origin, target)


def _levels(costs: Costs, node: int) -> list[tuple[float, list[int]]]:
    """The candidates by cost, the lowest first. Those of equal cost are together."""
    owner = costs.histories.owners[node]
    found = sorted((costs.of(node, w), w) for w in set(costs.histories.candidates[owner]) if w != owner)
    levels: list[tuple[float, list[int]]] = []
    for cost, worker in found:
        if levels and cost - levels[-1][0] <= costs.histories.tolerance * max(costs.loads[node], 1e-300):
            levels[-1][1].append(worker)
        else:
            levels.append((cost, [worker]))
    return levels


def _regret(levels: Sequence[tuple[float, list[int]]], level: int) -> float:
    """The loss of a copy that cannot be on a worker of this level."""
    return levels[level + 1][0] - levels[level][0] if level + 1 < len(levels) else 0.0


def _fits(load: float, limit: float) -> bool:
    return load <= limit * (1 + 1e-9)


def centred(history: Sequence[float]) -> list[float]:
    """The history with mean 0 and length 1. All zeros if it never changes."""
    mean = math.fsum(history) / len(history) if history else 0.0
    found = [value - mean for value in history]
    length = math.sqrt(math.fsum(value * value for value in found))
    if length <= 1e-9 * max(map(abs, history), default=0.0):
        return [0.0] * len(found)
    return [value / length for value in found]
