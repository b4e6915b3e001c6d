"""`rhino drain` in a simulated cluster: a worker is emptied, what it owns is handed over; some are taken back.

As the handover manager has it done (handover_manager/drive: drain.py, handovers.py); one worker at a time, so that
the others are enough for every group.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from rhino_core.ids import ReplicaGroup

if TYPE_CHECKING:
    from tests.simulation.cluster import Cluster

SEEDS = 0.25  # of all seeds have drains
HANDED_OVER, TAKEN_BACK = 0.7, 0.5  # of the drains
FIRST_S = (0.0, 8.0)
LENGTH_S = (0.2, 4.0)  # of one that is taken back
AGAIN_S = 0.4


class Drains:
    """Draws from a source of its own: seeds without drains are what they are without this class."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._world = cluster.world
        self._random = Random(f"drains of seed {cluster.world.seed}")

    def start(self, *, until: float) -> None:
        self._until = until
        if self._random.random() < SEEDS:
            self._world.at(self._random.uniform(*FIRST_S), self._begin)

    def _begin(self) -> None:
        if self._world.now >= self._until:
            return
        worker = self._random.choice(sorted(self._cluster.sidecars))
        for other in sorted(self._cluster.manager.draining - {worker}):  # an older journal has brought it back
            self._cluster.manager.set_draining(other, False)
        if not self._cluster.manager.set_draining(worker, True):
            self._world.after(AGAIN_S, self._begin)
            return
        if self._random.random() < HANDED_OVER:
            self._hand_over(worker)
        if self._random.random() < TAKEN_BACK:
            self._world.after(self._random.uniform(*LENGTH_S), lambda: self._take_back(worker))

    def _hand_over(self, worker: str) -> None:
        """Moves the groups of the worker to whole members, and repeats that while it owns any, or may own any."""
        manager = self._cluster.manager
        if worker not in manager.draining:
            return
        for group in list(manager.core.groups.values()) if manager.up else []:
            targets = [m.worker.worker_id for m in group.members[1:] if m.whole]
            if group.owner.worker_id == worker and targets:
                manager.change(group.group, make_owner=self._random.choice(targets))
        self._world.after(AGAIN_S, lambda: self._hand_over(worker))

    def _take_back(self, worker: str) -> None:
        if self._cluster.manager.set_draining(worker, False):
            self._shorten(worker)
        else:
            self._world.after(AGAIN_S, lambda: self._take_back(worker))

    def _shorten(self, worker: str) -> None:
        """Chains lose the replacements that they got for the worker: naming the owner again cuts them."""
        manager = self._cluster.manager
        longer = [g for g in manager.core.groups.values() if g.member(worker) is not None and _is_longer(g)]
        cut = [manager.change(group.group, make_owner=group.owner.worker_id) for group in longer]
        if manager.up and all(cut):
            self._world.after(self._random.uniform(*LENGTH_S), self._begin)
        else:
            self._world.after(AGAIN_S, lambda: self._shorten(worker))


def _is_longer(group: ReplicaGroup) -> bool:
    return len(group.members) > group.settings.replication_factor + 1
