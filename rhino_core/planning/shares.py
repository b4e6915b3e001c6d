"""Shares of the workers in a load."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from rhino_core.planning.goals import Goals, Weight
from rhino_core.planning.model import Model


@dataclass(frozen=True, slots=True)
class Share:
    """The share of a worker.

    `mean`: the best possible load if virtual nodes could be cut. `fair`: the same without `hot` virtual nodes, each
    heavier than a share, and without their workers.
    """

    mean: float
    fair: float
    hot: frozenset[int]


def receivers_of(model: Model, goals: Goals) -> list[int]:
    """Workers that may receive virtual nodes."""
    named = goals.receivers
    return [w for w, site in enumerate(model.sites) if site.stays and (named is None or site.worker_id in named)]


def share_of(model: Model, weight: Weight, receivers: Sequence[int]) -> Share:
    """The share in `weight`. Workers that receive nothing and have less than the share keep their load."""
    loads = model.totals[weight]
    workers = dict.fromkeys(worker for worker, site in enumerate(model.sites) if site.stays)
    left = math.fsum(loads)
    for worker in sorted(workers.keys() - set(receivers), key=loads.__getitem__):
        if loads[worker] * len(workers) >= left or len(workers) == 1:
            break
        left -= loads[worker]
        del workers[worker]
    mean = max(left, 0.0) / len(workers)
    return Share(mean, *_without_hot(model, weight, workers, left, mean))


def _without_hot(
    model: Model, weight: Weight, sharing: dict[int, None], total: float, mean: float
) -> tuple[float, frozenset[int]]:
    """The share without the virtual nodes heavier than a share, and these virtual nodes."""
    hot, left, fair, workers, column = set[int](), total, mean, dict(sharing), model.columns[weight]
    while fair > 0:
        heavy = [node for node, value in enumerate(column) if value > fair and node not in hot]
        if not heavy:
            break
        if len(heavy) >= len(workers):
            return mean, frozenset()  # so few virtual nodes that each is a share: there is no balance to protect
        for node in heavy:
            owner = model.owner[node]
            del workers[owner if owner in workers else next(iter(workers))]
            left -= column[node]
        hot.update(heavy)
        fair = max(left, 0.0) / len(workers)
    return fair, frozenset(hot)
