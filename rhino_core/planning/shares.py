"""Shares of the workers, and the proven lower bound of the highest load. Loads are per unit of capacity here."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from rhino_core.errors import PreconditionError, UnknownError
from rhino_core.planning.goals import Goals, Weight
from rhino_core.planning.model import Model

SORTED_UP_TO = 50_000  # virtual nodes; the bound by counting sorts them


@dataclass(frozen=True, slots=True)
class Share:
    """The share of a worker of capacity 1, in one weight.

    `mean`: the best possible load if virtual nodes could be cut. `fair`: the same without `hot` virtual nodes, each
    heavier than a share, and without their workers. `lower`: no plan has a lower peak.
    """

    weight: Weight
    mean: float
    fair: float
    lower: float
    hot: frozenset[int]
    workers: frozenset[int]  # that share the load; others receive nothing and have less than a share


def check(model: Model, goals: Goals) -> None:
    """Raises UnknownError for unknown receivers.

    Raises PreconditionError if nothing can be placed, or a weight to balance is not known for every virtual node.
    """
    for worker in sorted(goals.receivers or ()):
        model.worker_of(worker)
    if not any(site is not None and site.stays for site in model.sites):
        raise PreconditionError("no worker may keep virtual nodes: start more sidecars, or end a drain")
    for weight in goals.weights:
        silent = sorted(model.unknown[weight])
        if silent and goals.bands[weight] < math.inf:
            named = [model.nodes[index] for index in silent[:5]]
            names = ", ".join(f"{node.name} of job {node.job}" for node in named if node is not None)
            raise PreconditionError(
                f"{weight.value} of {len(silent)} virtual nodes is not known ({names}): wait for the next batch, or "
                f"leave {weight.value} out of the goals"
            )


def receivers_of(model: Model, goals: Goals) -> list[int]:
    """Workers that may receive virtual nodes."""
    found = [w for w, site in enumerate(model.sites) if site is not None and site.takes]
    if goals.receivers is None:
        return found
    return [w for w in found if _named(model, w) in goals.receivers]


def share_of(model: Model, weight: Weight, receivers: Sequence[int]) -> Share:
    """The share in `weight`. Workers that receive nothing and have less than the share keep their load."""
    capacity = {w: site.capacity for w, site in enumerate(model.sites) if site is not None and site.stays}
    column, loads = model.columns[weight], model.totals[weight]
    total = math.fsum(loads) + math.fsum(map(column.__getitem__, model.homeless))
    closed = sorted(capacity.keys() - set(receivers), key=lambda w: loads[w] / capacity[w])
    room = math.fsum(capacity.values())
    left = total
    for worker in closed:
        if loads[worker] / capacity[worker] * room >= left or len(capacity) == 1:
            break
        left -= loads[worker]
        room -= capacity.pop(worker)
    mean = max(left, 0.0) / room
    fair, hot = _without_hot(model, weight, capacity, left, mean)
    largest = max(capacity.values())
    lower = max(mean, _counted(model, weight, len(capacity), largest) if left == total else 0.0)
    if left == total and model.heaviest[weight] > lower * largest:
        lower = max(lower, max(column, default=0.0) / largest)
    return Share(weight, mean, fair, lower, hot, frozenset(capacity))


def _without_hot(
    model: Model, weight: Weight, capacity: dict[int, float], total: float, mean: float
) -> tuple[float, frozenset[int]]:
    """The share without the virtual nodes heavier than a share of the largest worker, and these virtual nodes."""
    hot, candidates = set[int](), list[int]()
    left, fair, workers, column = total, mean, dict(capacity), model.columns[weight]
    largest = max(workers.values())
    if model.heaviest[weight] <= mean * largest:
        return mean, frozenset()
    bar = math.inf
    while fair > 0:
        if fair * largest < bar:  # a column is long: it is read once more only if the share has fallen by half
            bar = fair * largest / 2
            candidates = [node for node, value in enumerate(column) if value > bar]
        heavy = [node for node in candidates if column[node] > fair * largest and node not in hot]
        if not heavy:
            break
        if len(heavy) >= len(workers):
            return mean, frozenset()  # so few virtual nodes that each is a share: there is no balance to protect
        for node in heavy:
            owner = model.owner[node]
            del workers[owner if owner in workers else next(iter(workers))]
            left -= column[node]
        hot.update(heavy)
        fair = max(left, 0.0) / math.fsum(workers.values())
    return fair, frozenset(hot)


def _counted(model: Model, weight: Weight, workers: int, largest: float) -> float:
    """Among the k * workers + 1 heaviest, one worker has k + 1. So it has at least the k + 1 lightest of these."""
    if weight is Weight.COUNT:
        return math.ceil(len(model.node_index) / workers) / largest
    if len(model.node_index) > SORTED_UP_TO:
        return 0.0
    heaviest = sorted(model.columns[weight], reverse=True)
    sums = [0.0, *itertools.accumulate(heaviest)]
    best = 0.0
    for k in range(1, (len(heaviest) - 1) // workers + 1):
        end = k * workers + 1
        best = max(best, sums[end] - sums[end - k - 1])
    return best / largest


def _named(model: Model, worker: int) -> str:
    site = model.sites[worker]
    if site is None:
        raise UnknownError(f"worker {worker}: removed")
    return site.worker_id
