"""Desired locations of virtual nodes: pure choices from what is seen of the cluster."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from handover_manager.core.view import ClusterView, TaskGroup, groups_of
from rhino.ids import VirtualNode


class Location(NamedTuple):
    """Hosts of one virtual node in order of preference."""

    task_group: int
    partition: int
    hosts: tuple[str, ...]


def virtual_nodes(job: str, task_groups: Sequence[TaskGroup]) -> dict[VirtualNode, tuple[int, ...]]:
    """Every virtual node of a job with the operators it consists of."""
    return {
        VirtualNode(job, group.task_group, partition): group.operators
        for group in task_groups
        for partition in range(group.partitions)
    }


def choose_worker(view: ClusterView, node: VirtualNode, operators: Sequence[int], standing: str | None) -> str | None:
    """The worker that should run `node`, None while no group of it is known.

    The choice of a marker or of a loss (`standing`) stands. Else the owner that most of its groups name; when that one
    is out of reach, the first holder in the chain.
    """
    if standing is not None:
        return standing
    groups = groups_of(node, operators)
    owners = Counter(seen.owner for seen in view.known(groups))
    if not owners:
        return None
    owner = owners.most_common(1)[0][0]
    if view.reachable(owner):
        return owner
    return next(iter(view.holders(groups)), owner)


def rank_workers(
    view: ClusterView, nodes: Mapping[VirtualNode, tuple[int, ...]], desired: Mapping[VirtualNode, str]
) -> dict[VirtualNode, tuple[str, ...]]:
    """Workers in order of preference: the desired one, then the other holders.

    The second place is given so that the virtual nodes of one desired worker spread over the others, should it be
    lost: to the holder that stands second for the fewest of them; nodes with the least choice go first.
    """
    second: dict[str, Counter[str]] = defaultdict(Counter)
    others = {
        node: [w for w in view.holders(groups_of(node, nodes[node])) if w != worker] for node, worker in desired.items()
    }
    ranked: dict[VirtualNode, tuple[str, ...]] = {}
    for node in sorted(others, key=lambda n: (len(others[n]), n)):
        taken = second[desired[node]]
        order = sorted(others[node], key=lambda w: (view.draining(w), taken[w]))  # stable: equals stay in chain order
        taken.update(order[:1])
        ranked[node] = (desired[node], *order)
    return ranked


def make_locations(view: ClusterView, ranked: Mapping[VirtualNode, Sequence[str]]) -> tuple[Location, ...]:
    """The map as the driver takes it, ordered by virtual node; workers whose host is unknown are left out."""
    locations = []
    for node in sorted(ranked):
        hosts = dict.fromkeys(view.workers[w].worker.host for w in ranked[node] if w in view.workers)
        if hosts:
            locations.append(Location(node.task_group, node.partition, tuple(hosts)))
    return tuple(locations)
