"""Fallback placement: the workers of a lost worker's virtual nodes until ownership has followed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from handover_manager.view import ClusterView
from rhino_core.ids import GroupId, VirtualNode

MISSES_MAX = 2  # batches in a row elsewhere after which a fallback ends; as many make a member the owner


class Fallbacks:
    """The fallback workers of one job's virtual nodes.

    After a loss the replication manager makes the next worker in the chain the owner. The driver follows its map, and
    so spreads the virtual nodes. If the two differ, the map wins, because ownership follows logged batches. Otherwise a
    just moved virtual node would move again. A fallback ends if the virtual node does not run there, because the query
    has no executor on the worker. The map then follows the owners. Not journalled: after a restart of the manager the
    map follows the owners too.
    """

    def __init__(self) -> None:
        self._ranked: dict[VirtualNode, tuple[str, ...]] = {}
        self._chosen: dict[VirtualNode, str] = {}
        self._misses: dict[VirtualNode, int] = {}

    def sent(self, ranked: Mapping[VirtualNode, tuple[str, ...]], pinned: Iterable[VirtualNode]) -> None:
        """Records the map sent to the driver: workers in order of preference.

        Virtual nodes under a marker are left out. They follow the owners of their groups if the target is lost.
        """
        self._ranked = {node: workers for node, workers in ranked.items() if node not in pinned}

    def workers(self) -> set[str]:
        """Workers of the map sent last. Their loss may begin a fallback."""
        return {worker for workers in self._ranked.values() for worker in workers}

    def ran(self, node: VirtualNode, *, missed: bool) -> bool:
        """Records whether a logged batch ran elsewhere than desired. Returns True if this ends a fallback."""
        if node not in self._chosen or not missed:
            self._misses.pop(node, None)
            return False
        self._misses[node] = self._misses.get(node, 0) + 1
        if self._misses[node] < MISSES_MAX:
            return False
        del self._chosen[node], self._misses[node]
        return True

    def of(self, node: VirtualNode, groups: Iterable[GroupId], view: ClusterView) -> str | None:
        """The fallback worker of `node` until it owns all groups. None if there is none: then the owner counts."""
        groups = tuple(groups)
        holders = view.holders(groups)
        lost, *others = self._ranked.get(node, ("",))
        if lost and not view.reachable(lost) and node not in self._chosen:
            fallback = next((worker for worker in others if worker in holders), None)
            if fallback is not None:
                self._chosen[node] = fallback
        fallback = self._chosen.get(node)
        if fallback is not None and (
            fallback not in holders or all(seen.owner == fallback for seen in view.known(groups))
        ):
            del self._chosen[node]
            return None
        return fallback
