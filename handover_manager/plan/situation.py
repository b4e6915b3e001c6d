"""The basis of a plan: the knowledge of the managers when it is made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from handover_manager.plan.holdings import Holdings
from handover_manager.plan.work import Work
from handover_manager.view import ClusterView
from rhino_core.ids import VirtualNode


@dataclass(frozen=True, slots=True)
class Situation:
    """`nodes` are the virtual nodes of the jobs concerned with their operators, `desired` their desired workers.

    `running` has the virtual nodes in a running handover, `arriving` the targets of running handovers; both with the
    handover's id. `work` comes from drivers' reports; plans by rows or time need it. A rebalance and adaptation leave
    `pinned` virtual nodes in place. None moves to a worker `barred` for it, unless people name that worker, or no
    other one has room. `holdings`: kept from former plans, so this one reads only the changes.
    """

    nodes: Mapping[VirtualNode, tuple[int, ...]]
    desired: Mapping[VirtualNode, str]
    running: Mapping[VirtualNode, str]
    arriving: Mapping[str, str]
    view: ClusterView
    work: Mapping[VirtualNode, Work] = field(default_factory=dict)
    pinned: frozenset[VirtualNode] = frozenset()
    barred: Mapping[VirtualNode, frozenset[str]] = field(default_factory=dict)
    holdings: Holdings = field(default_factory=Holdings)
