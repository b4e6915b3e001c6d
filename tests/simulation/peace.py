"""Events of a healthy cluster: connections that break now and then, and handovers."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING

from tests.simulation.world import Faults

if TYPE_CHECKING:
    from tests.simulation.cluster import Cluster

MOVES = 4  # while the last batches are written
MOVING_S = 0.8


class Peace:
    """Draws moves from a source of its own."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._world = cluster.world
        self._random = Random(f"peace of seed {cluster.world.seed}")

    def start(self, *, last_batches_s: float) -> None:
        """From now on; `last_batches_s`: when the work ends."""
        variety = self._cluster.variety
        self._world.faults = replace(Faults.none(), break_link=variety.breaks_in_peace)
        for _ in range(MOVES if variety.moves_in_peace else 0):
            self._world.at(last_batches_s - self._random.uniform(0.0, MOVING_S), self._move)

    def _move(self) -> None:
        manager = self._cluster.manager
        group = manager.core.groups[self._random.choice(sorted(manager.core.groups))]
        whole = [m.worker.worker_id for m in group.members if m.whole and m.worker.worker_id not in manager.draining]
        if whole:
            manager.change(group.group, make_owner=self._random.choice(whole))
