"""`ElasticCluster`: a local cluster whose number of workers changes while queries run on it."""

from __future__ import annotations

import os
import signal
import time

from rhino.testing import rhino_daemons
from rhino.testing.cluster import STOP_TIMEOUT_S, LocalCluster, LocalWorker, worker_id
from rhino.testing.process import POLL_S, ClusterError

DECOMMISSION_TIMEOUT_S = 60.0


class ElasticCluster(LocalCluster):
    """A cluster with workers that come and go. A worker keeps its place in `workers` when it is removed.

    The network has to know the addresses of later workers, as the loopback does. A session starts executors on later
    workers only if `spark.cores.max` allows them: `conf` allows the number of workers at its call.
    """

    def add_worker(self) -> LocalWorker:
        """Starts the next worker. Returns it when its sidecar serves and the master knows it.

        Executors of a running session start afterwards.
        """
        index, master = len(self.workers), self._master
        if master is None:
            raise ClusterError("the cluster is not running")
        sidecar = self._start_sidecar(index) if self._rhino else None
        address = rhino_daemons.wait_sidecar(sidecar) if sidecar is not None else ""
        host, folder = self.network.host(index), self.worker_folder(index)
        worker = LocalWorker(worker_id(index), host, folder, self._start_worker(index), sidecar, address)
        self.workers.append(worker)
        self._wait_registered(worker, master)
        return worker

    def remove_worker(self, index: int, *, timeout_s: float = DECOMMISSION_TIMEOUT_S) -> None:
        """Decommissions a worker of Spark, waits until its executors have ended, then stops its processes.

        It loses no state only if the worker was drained before. The session needs `spark.decommission.enabled`, or its
        executors do not end. Raises ClusterError after `timeout_s`.
        """
        worker = self.workers[index]
        if worker.killed:
            raise ClusterError(f"{worker.worker_id} has been killed or removed before")
        os.kill(worker.spark.pid, signal.SIGPWR)
        deadline = time.monotonic() + timeout_s
        while pids := worker.executor_pids():
            if time.monotonic() > deadline:
                raise ClusterError(f"{worker.worker_id}: executors {pids} go on {timeout_s:g} s after the request")
            time.sleep(POLL_S)
        worker.killed = True
        for process in (worker.spark, worker.sidecar):
            if process is not None:
                process.terminate(timeout_s=STOP_TIMEOUT_S)

    @property
    def present(self) -> list[LocalWorker]:
        """The workers neither removed nor killed."""
        return [worker for worker in self.workers if not worker.killed]
