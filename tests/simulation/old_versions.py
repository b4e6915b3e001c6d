"""Uses of older versions: readers, and a query that is taken back to one.

Batches of a query that was taken back get the numbers of the lost branch, under ids of their own.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from rhino_core.ids import StoreVersion
from tests.simulation.preparing import Preparing
from worker_runtime.protocol.copies.preparing import PrepareState

if TYPE_CHECKING:
    from tests.simulation.cluster import Cluster
    from tests.simulation.workload import Workload

FIRST_S, PAUSE_S = 2.5, (0.5, 3.0)
READING_S = (0.1, 3.0)  # as long as a reader has the version open
BACK = 0.4  # of what happens: the query is taken back


class OldVersions:
    """Draws from a source of its own."""

    def __init__(self, cluster: Cluster, workload: Workload) -> None:
        self._cluster, self._workload, self._world = cluster, workload, cluster.world
        self._random = Random(f"old versions of seed {cluster.world.seed}")

    def start(self, *, until: float) -> None:
        self._until = until
        self._world.after(FIRST_S, self._next)

    def _next(self) -> None:
        if self._world.now >= self._until:
            return
        if self._cluster.variety.taken_back and self._random.random() < BACK:
            self._take_back()
        else:
            self._read()
        self._world.after(self._random.uniform(*PAUSE_S), self._next)

    def _take_back(self) -> None:
        """No further than the floor."""
        store = self._random.choice(self._workload.stores)
        floor = self._cluster.checkers.floors.get(store.id, 1)
        batches = self._random.randint(1, 3)
        if len(store.history) > batches and store.history[-1 - batches].version >= floor:
            self._workload.rewind(store, batches)

    def _read(self) -> None:
        """As a reader of state does, on any worker: a version at or above the floor, which must not be lost."""
        store = self._random.choice(self._workload.stores)
        floor = self._cluster.checkers.floors.get(store.id, 1)
        versions = [version for version in store.history if version.version >= floor]
        up = [sidecar for sidecar in self._cluster.sidecars.values() if sidecar.up]
        if not versions or not up:
            return
        wanted, reader = StoreVersion(store.id, self._random.choice(versions)), self._random.choice(up)
        open_s = self._random.uniform(*READING_S)

        def done(state: PrepareState, pin: int) -> None:
            self._world.say(f"{reader.name} reads {wanted}: {state.value}")
            if state is PrepareState.READY:
                reader.later(open_s, lambda: reader.pins.pop(pin, None))

        Preparing(reader, wanted, done)
