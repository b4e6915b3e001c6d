"""Virtual nodes that are heavier than a worker's share: keys are not split, so everything else leaves their worker."""

from __future__ import annotations

import math

from rhino_core.planning.goals import Goals, Weight
from rhino_core.planning.plan import Plan
from rhino_model.handovers import HotNode

HOT_BYTES_MIN = 64 << 20  # less state is copied within seconds wherever it lies: no imbalance of it is worth a line


def hot_nodes(plan: Plan, goals: Goals) -> tuple[HotNode, ...]:
    """Those of the plan's certificate, the heaviest first. Each is named once: by the most important weight."""
    model, found = plan.model, list[HotNode]()
    for node in plan.certificate.hot:
        index = model.node_index[node]
        site = model.sites[plan.placed.get(index, model.owner[index])]
        weights = [w for w in goals.weights if w is not Weight.COUNT and goals.bands[w] < math.inf]
        shares = {
            w: model.columns[w][index] / bound.mean
            for w in weights
            if (bound := plan.certificate.bounds[w]).mean
            and (w is not Weight.BYTES or model.columns[w][index] >= HOT_BYTES_MIN)
        }
        by = next((weight for weight, share in shares.items() if share > 1), None)
        if by is not None and site is not None:
            found.append(HotNode(node, site.worker_id, by, shares[by]))
    return tuple(sorted(found, key=lambda hot: (-hot.shares, hot.node)))
