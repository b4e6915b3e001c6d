"""Who goes on with the virtual nodes of a lost worker: whoever the driver's map sends them to at once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from handover_manager.core.view import ClusterView
from rhino.ids import GroupId, VirtualNode


class Heirs:
    """Of one job. The replication manager makes the next one in the chain the owner of a lost worker's group, the
    driver goes by the map, which spreads. Where these differ the map stands: owners follow logged batches, and a
    virtual node that has just moved would have to move again. Not journalled: after a restart owners are followed."""

    def __init__(self) -> None:
        self._ranked: dict[VirtualNode, tuple[str, ...]] = {}
        self._heirs: dict[VirtualNode, str] = {}

    def note(self, ranked: Mapping[VirtualNode, tuple[str, ...]], pinned: Iterable[VirtualNode]) -> None:
        """The map as the driver gets it: workers in order of preference, an owner first except for those under a
        marker. These follow their owners when the target is lost."""
        self._ranked = {node: workers for node, workers in ranked.items() if node not in pinned}

    def of(self, node: VirtualNode, groups: Iterable[GroupId], view: ClusterView) -> str | None:
        """The heir of `node` until it owns all groups; None when there is none, and the owner counts."""
        groups = tuple(groups)
        holders = view.holders(groups)
        lost, *others = self._ranked.get(node, ("",))
        if lost and not view.reachable(lost) and node not in self._heirs:
            heir = next((worker for worker in others if worker in holders), None)
            if heir is not None:
                self._heirs[node] = heir
        heir = self._heirs.get(node)
        if heir is not None and (heir not in holders or all(seen.owner == heir for seen in view.known(groups))):
            del self._heirs[node]
            return None
        return heir
