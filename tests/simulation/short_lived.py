"""A second query, which ends and is forgotten while its executors, and messages about it, may still be under way."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from rhino_core.ids import StoreId
from tests.simulation.workload import Workload

if TYPE_CHECKING:
    from tests.simulation.cluster import Cluster

ENDS_S, FORGOTTEN_S = (2.5, 6.0), (0.0, 3.0)  # the second after the first
AGAIN_S = 0.3


class ShortLived:
    """Draws from a source of its own."""

    def __init__(self, cluster: Cluster, job: str = "short", pause_s: float = 0.3) -> None:
        self.job = job
        self.gone = False
        self._cluster, self._world = cluster, cluster.world
        self._random = Random(f"{job} of seed {cluster.world.seed}")
        self._query = Workload(cluster, (StoreId(job, 0, 0, "default"),), pause_s)

    def start(self, *, until: float) -> None:
        """Its end comes before `until`, and that it is forgotten soon after."""
        self._query.start()
        ends = min(self._world.now + self._random.uniform(*ENDS_S), until)
        self._world.at(ends, self._query.end)
        self._world.at(ends + self._random.uniform(*FORGOTTEN_S), self._forget)

    def forget_again(self) -> None:
        """The manager may have forgotten that."""
        if self.gone:
            self._forget()

    def _forget(self) -> None:
        """Again while the manager is away. It refuses as long as nobody stores anything of the job."""
        unused = not any(store.job == self.job for disk in self._cluster.disks().values() for store in disk.files)
        if self._cluster.manager.forget_job(self.job):
            self._cluster.checkers.forgotten(self.job)
            self.gone = True
        elif not unused:
            self._world.after(AGAIN_S, self._forget)
