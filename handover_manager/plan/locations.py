"""Desired locations of virtual nodes: pure functions of a view of the cluster."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from handover_manager.view import ClusterView
from rhino_core.ids import VirtualNode
from rhino_model.handovers import groups_of


class Location(NamedTuple):
    """Workers of one virtual node in order of preference."""

    task_group: int
    partition: int
    workers: tuple[str, ...]


class LocationMap(NamedTuple):
    """The map for a driver. `hosts` has the host of every named worker, or "" if it is unknown."""

    locations: tuple[Location, ...]
    hosts: tuple[tuple[str, str], ...]


def choose_worker(view: ClusterView, node: VirtualNode, operators: Sequence[int], standing: str | None) -> str | None:
    """The desired worker of `node`. None while no group of it is known.

    `standing` is the choice of a marker or a fallback, and wins. Otherwise it is the owner of most of the groups. If
    that owner is not reachable, it is the first holder in the chain.
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

    If a desired worker is lost, its virtual nodes should spread over the others. So the second place goes to the holder
    with the fewest second places. Virtual nodes with the fewest holders choose first.
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


def make_locations(view: ClusterView, ranked: Mapping[VirtualNode, Sequence[str]]) -> LocationMap:
    """The map for the driver, ordered by virtual node.

    It names workers not registered with this manager yet: their executors know their worker.
    """
    locations = tuple(Location(node.task_group, node.partition, tuple(ranked[node])) for node in sorted(ranked))
    named = sorted({worker for location in locations for worker in location.workers})
    hosts = tuple((w, view.workers[w].worker.host if w in view.workers else "") for w in named)
    return LocationMap(locations, hosts)
