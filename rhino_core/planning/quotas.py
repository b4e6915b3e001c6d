"""Virtual nodes of equal weight: exact numbers for each worker, and the cheapest way to them by cancelling cycles.

Moves form a flow between workers. A flow costs least if its residual graph has no cycle of negative cost (M. Klein,
*A primal method for minimal cost flows*, Management Science 14, 1967).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from rhino_core.planning.model import NOWHERE
from rhino_core.planning.state import State

EXACT_WORKERS = 48  # the graph has an edge between any two workers
EXACT_NODES = 2000


@dataclass(frozen=True, slots=True)
class Quotas:
    """Each of `workers` gets `low` or `low` + 1 virtual nodes of weight `unit`."""

    workers: frozenset[int]
    low: int
    unit: float


def equal_quotas(state: State) -> Quotas | None:
    """None unless one weight is to be balanced, all virtual nodes have the same of it, and workers are alike.

    None as well if the band is wider than one virtual node.
    """
    finite = [p for p, weight in enumerate(state.weights) if state.goals.bands[weight] < math.inf]
    sites = [site for site in state.model.sites if site is not None and site.stays]
    if len(finite) != 1 or len({site.capacity for site in sites}) > 1:
        return None
    column, share = state.columns[finite[0]], state.shares[finite[0]]
    values = {column[node] for node in state.model.node_index.values()}
    unit = next(iter(values), 0.0)
    if len(values) != 1 or not unit:
        return None
    number = round(sum(state.loads[finite[0]][worker] for worker in share.workers) / unit)
    band = state.goals.bands[share.weight]
    if math.floor(number / len(share.workers) * (1 + band)) > math.ceil(number / len(share.workers)):
        return None  # the band leaves more freedom than one virtual node
    return Quotas(share.workers, number // len(share.workers), unit)


def limit_to(state: State, quotas: Quotas) -> None:
    """Sets the limits of the state: the workers with most keep one more if the number does not divide evenly."""
    position = next(p for p, weight in enumerate(state.weights) if state.goals.bands[weight] < math.inf)
    loads, limits = state.loads[position], state.limits[position]
    numbers = {worker: round(loads[worker] / quotas.unit) for worker in quotas.workers}
    spare = sum(numbers.values()) - quotas.low * len(numbers)
    for rank, worker in enumerate(sorted(numbers, key=lambda w: (-numbers[w], w not in state.receives, w))):
        limits[worker] = (quotas.low + (rank < spare)) * quotas.unit


def cheapest(state: State, quotas: Quotas) -> bool:
    """Makes the moves cost as little as these quotas allow. False if the graph is too large."""
    if len(quotas.workers) > EXACT_WORKERS or len(state.model.node_index) > EXACT_NODES:
        return False
    workers = sorted(quotas.workers)
    while True:
        edges = _edges(state, quotas, workers)
        cycle = _negative_cycle(len(workers) + 1, edges)
        if cycle is None:
            return True
        for node, target in [edges[pair][1:] for pair in cycle if edges[pair][1] != NOWHERE]:
            state.put(node, target)


Edges = dict[tuple[int, int], tuple[float, int, int]]  # from, to -> cost, virtual node (or NOWHERE), its new worker


def _edges(state: State, quotas: Quotas, workers: list[int]) -> Edges:
    """The cheapest move between any two workers. The last vertex lends: a worker with one more may give it up."""
    edges: Edges = {}
    lender = len(workers)
    for row, origin in enumerate(workers):
        members = sorted(state.members(origin))
        edges[(lender, row) if len(members) > quotas.low else (row, lender)] = (0.0, NOWHERE, NOWHERE)
        for node in members:
            here = state.cost(node, origin)
            for column, target in enumerate(workers):
                allowed = target in state.receives or target == state.model.owner[node]
                if target == origin or not allowed or not state.fits(node, target):
                    continue
                cost = state.cost(node, target) - here
                if (row, column) not in edges or cost < edges[row, column][0]:
                    edges[row, column] = (cost, node, target)
    return edges


def _negative_cycle(size: int, edges: Edges) -> list[tuple[int, int]] | None:
    """The edges of a cycle with negative cost, by Bellman and Ford. None if there is none."""
    distances, parents = [0.0] * size, [-1] * size
    last = -1
    for _ in range(size):
        last = -1
        for (start, end), (cost, _node, _target) in edges.items():
            if distances[start] + cost < distances[end] - 1e-6:
                distances[end], parents[end] = distances[start] + cost, start
                last = end
        if last < 0:
            return None
    for _ in range(size):
        last = parents[last]
    cycle, at = list[tuple[int, int]](), last
    while True:
        cycle.append((parents[at], at))
        at = parents[at]
        if at == last:
            return cycle
