"""`LocalCluster`: a Spark standalone cluster on one machine, with a Rhino manager and a sidecar beside each worker."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Self

from pyspark.sql import SparkSession

from rhino.testing import rhino_daemons, session, spark_daemons
from rhino.testing.conf import spark_settings, stock_settings
from rhino.testing.managers import Managers, free_port
from rhino.testing.network import Loopback, Network
from rhino.testing.process import ClusterError, Process, kill_pid
from rhino.testing.reaper import Reaper
from rhino.testing.security import ClusterSecurity
from rhino.testing.shape import ClusterShape
from rhino_core.settings import SidecarSettings
from spark_connector.conf import application_settings

STOP_TIMEOUT_S = 5.0


@dataclass(slots=True)
class LocalWorker:
    """One worker with its own address: a Spark worker with executors, and a sidecar on the same file system."""

    worker_id: str
    host: str
    folder: Path
    spark: Process
    sidecar: Process | None = None  # None without Rhino
    peer_address: str = ""
    killed: bool = False
    sidecar_killed: bool = False

    def executor_pids(self) -> list[int]:
        return self.spark.children(spark_daemons.EXECUTOR_CLASS)

    def pids(self) -> list[int]:
        """Live processes of this worker: Spark worker, executors, sidecar."""
        return self.spark.session_pids() + (self.sidecar.session_pids() if self.sidecar else [])


class LocalCluster:
    """Context manager. `folder` receives data, local dirs and logs (`folder/logs`, one file per process).

    Worker i is `worker-<i>` at the network's address i, a host of its own for Spark's scheduler. With `rhino=False`
    there is no manager and no sidecar, and sessions use Spark's own RocksDB provider (for comparisons). An error of a
    process contains its name and the end of its log. All processes end with the context, also after an exception or
    Ctrl-C. If this process is killed, a helper process ends the others. Sidecars call their node `sidecar_host`;
    "{host}" in it becomes Spark's name of the node. The processes know each other by a cluster key in `folder`, or by
    the key of RHINO_CLUSTER_KEY. While the cluster runs, this variable is set in this process, for its calls and
    commands. `manager_failpoints` arms failpoints at every start of the manager (`rhino_core.failpoints`), for tests.
    """

    def __init__(
        self,
        folder: Path,
        *,
        workers: int = 3,
        rhino: bool = True,
        shape: ClusterShape | None = None,
        network: Network | None = None,
        sidecar_host: str = "{host}",
        manager_failpoints: str = "",
    ) -> None:
        self.folder = Path(folder).resolve()
        self.log_dir = self.folder / "logs"
        self.shape = shape or ClusterShape()
        self.workers: list[LocalWorker] = []
        self.network = network or Loopback()
        self._count = workers
        self._sidecar_host = sidecar_host
        self._manager_failpoints = manager_failpoints
        self._rhino = rhino
        self._security = ClusterSecurity(self.folder / "security") if rhino else None
        self._master: spark_daemons.Master | None = None
        self._processes: list[Process] = []
        self._reaper: Reaper | None = None
        self._sockets: Path | None = None
        self._managers = Managers(self.network.center, self.shape.managers, self._start_manager) if rhino else None
        several = self._managers is not None and self._managers.several  # then witnesses need their addresses
        self._ports = [free_port(self.network.center) if several else 0 for _ in range(workers)]

    # ---- start and stop

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    def start(self) -> None:
        """Starts all processes. Returns when the master knows all workers and every Rhino process serves."""
        self.log_dir.mkdir(parents=True, exist_ok=True)
        # Not in `folder`: the path of a Unix socket has at most about 100 bytes.
        self._sockets = Path(tempfile.mkdtemp(prefix="rhino-"))
        self._reaper = Reaper()
        self._reaper.remove(self._sockets)
        if self._security is not None:
            self._security.begin()
        center = self.network.center
        master = self._own(spark_daemons.start_master(center, log_dir=self.log_dir, reaper=self._reaper))
        sidecars: list[Process | None] = [None] * self._count
        if self._managers is not None:
            self._managers.begin()
            sidecars = [self._start_sidecar(i) for i in range(self._count)]
        self._master = spark_daemons.wait_master(master)
        for i in range(self._count):
            host, folder = self.network.host(i), self.worker_folder(i)
            self.workers.append(LocalWorker(worker_id(i), host, folder, self._start_worker(i), sidecars[i]))
        self._wait_ready(self._master)

    def stop(self) -> None:
        """Ends every process of this cluster, including the driver's JVM. Idempotent."""
        try:
            if self._master is not None:
                session.close_driver()
        finally:
            for process in reversed(self._processes):
                if process.name.startswith("spark"):
                    process.kill()
                else:
                    process.terminate(timeout_s=STOP_TIMEOUT_S)
            self._processes.clear()
            if self._security is not None:
                self._security.end()
            if self._reaper is not None:
                self._reaper.close()
            if self._sockets is not None:
                shutil.rmtree(self._sockets, ignore_errors=True)

    def pids(self) -> list[int]:
        """All live processes of this cluster except the driver's JVM."""
        helper = [self._reaper.pid] if self._reaper else []
        return helper + [pid for process in self._processes for pid in process.session_pids()]

    def check(self) -> None:
        """Raises ClusterError with the name of an unexpectedly ended process."""
        killed = {id(p) for w in self.workers if w.killed for p in (w.spark, w.sidecar)}
        killed |= {id(w.sidecar) for w in self.workers if w.sidecar_killed}
        for process in self._processes:
            managed = self._managers is not None and self._managers.may_have_ended(process)
            if not process.running and id(process) not in killed and not managed:
                raise ClusterError(f"{process.name} has ended by itself{process.tail()}")

    # ---- use

    def worker_folder(self, index: int) -> Path:
        """The folder with all files of a worker: the sidecar's data and Spark's local directories."""
        return self.folder / worker_id(index)

    @property
    def master_url(self) -> str:
        if self._master is None:
            raise ClusterError("the cluster is not running")
        return self._master.url

    @property
    def manager(self) -> str:
        """ "host:port" of the manager, or several with commas between them. Empty without Rhino."""
        return self._managers.address if self._managers else ""

    @property
    def manager_pid(self) -> int:
        """Of the manager that leads."""
        return self._all_managers().leader.pid

    @property
    def socket(self) -> str:
        """Path of the sidecars' sockets, as a value for `spark.rhino.socket`."""
        return f"{self._sockets}/{{host}}/sidecar.sock"

    def conf(self, app_name: str, extra: Mapping[str, str] | None = None) -> dict[str, str]:
        """Spark settings of a session on this cluster. `extra` takes precedence."""
        state = application_settings(self.manager, socket=self.socket) if self._rhino else stock_settings()
        count, driver = len(self.workers), self.network.center
        settings = spark_settings(self.master_url, app_name, self.shape, count, driver)
        tls = self._security.conf() if self._security else {}
        return settings | state | tls | dict(extra or {})

    def session(self, app_name: str, extra: Mapping[str, str] | None = None) -> SparkSession:
        """Opens a PySpark session on this cluster with `conf(app_name, extra)`. Only one may be open at a time."""
        return session.open_session(self.conf(app_name, extra), log_path=self.log_dir / "spark-driver.log")

    # ---- faults

    def kill_worker(self, index: int) -> int:
        """kill -9 of executors, Spark worker and sidecar of a worker. Returns the wall clock (ms) before the kill."""
        worker = self.workers[index]
        worker.killed = True
        pids = worker.pids()
        at_ms = time.time_ns() // 1_000_000
        for pid in pids:
            kill_pid(pid)
        for process in (worker.spark, worker.sidecar):
            if process is not None:
                process.kill()
        return at_ms

    def kill_executor(self, index: int) -> list[int]:
        """kill -9 of a worker's executors. Spark's worker starts new ones. Returns the killed pids."""
        pids = self.workers[index].executor_pids()
        if not pids:
            raise ClusterError(f"{self.workers[index].worker_id} has no executor to kill")
        for pid in pids:
            kill_pid(pid)
        return pids

    def kill_driver(self) -> None:
        """kill -9 of the driver's JVM. It cannot clean up. `session` starts another one."""
        session.kill_driver()

    def kill_sidecar(self, index: int) -> None:
        """kill -9 of a sidecar alone. The executors keep running. See `restart_sidecar`."""
        self._sidecar(index).kill()
        self.workers[index].sidecar_killed = True

    def restart_sidecar(self, index: int, *, wait: bool = True) -> None:
        """kill -9 of a sidecar if it runs, then starts a new one on its data.

        With `wait`, returns when it serves. This requires a manager. Otherwise `peer_address` keeps its old value.
        """
        worker, sidecar = self.workers[index], self._sidecar(index)
        sidecar.kill()
        self._processes.remove(sidecar)
        worker.sidecar = self._start_sidecar(index)
        worker.sidecar_killed = False
        if wait:
            worker.peer_address = rhino_daemons.wait_sidecar(worker.sidecar)

    def restart_worker(self, index: int, *, wait: bool = True) -> None:
        """Restarts a killed worker on its data: the sidecar, and the Spark worker, which starts executors itself."""
        worker, master = self.workers[index], self._master
        if not worker.killed or master is None:
            raise ClusterError(f"{worker.worker_id} has not been killed")
        if worker.sidecar is not None:
            self.restart_sidecar(index, wait=wait)
        self._processes.remove(worker.spark)
        worker.spark = self._start_worker(index)
        worker.killed = False
        if wait:
            self._wait_registered(worker, master)

    def kill_manager(self) -> None:
        """kill -9 of the manager that leads. See `restart_manager`."""
        self._all_managers().kill()

    def restart_manager(self) -> None:
        """Starts the killed manager again, or kills and starts the one that leads. If it is the only one, waits."""
        self._all_managers().restart()

    def revive_managers(self) -> None:
        """Starts managers again that have ended by themselves, as systemd does."""
        self._all_managers().revive()

    # ---- internal

    @property
    def cluster_key(self) -> str:
        """Path of the cluster key. Empty if all connections are plain."""
        return self._security.key if self._security else ""

    def _own(self, process: Process) -> Process:
        self._processes.append(process)
        return process

    def _start_manager(self, number: int, listen: str, bootstrap: bool) -> Process:
        assert self._reaper is not None
        name = f"-{number}" if number else ""
        witnesses = [f"{worker_id(i)}={self.network.host(i)}:{port}" for i, port in enumerate(self._ports) if port]
        if witnesses:  # an odd number of them
            witnesses = ["--witnesses", ",".join(witnesses[: (len(witnesses) - 1) // 2 * 2 + 1])]
        return self._own(
            rhino_daemons.start_manager(
                self.folder / f"manager{name}",
                log_dir=self.log_dir,
                reaper=self._reaper,
                listen=listen,
                bootstrap=bootstrap,
                cluster_key=self.cluster_key,
                failpoints=self._manager_failpoints,
                options=("--adaptation", self.shape.adaptation, *witnesses, *self.shape.manager_options),
            )
        )

    def _all_managers(self) -> Managers:
        if self._managers is None:
            raise ClusterError("this cluster has no manager")
        return self._managers

    def _sidecar(self, index: int) -> Process:
        sidecar = self.workers[index].sidecar
        if sidecar is None:
            raise ClusterError(f"{self.workers[index].worker_id} has no sidecar")
        return sidecar

    def _start_sidecar(self, index: int) -> Process:
        assert self._sockets is not None
        assert self._reaper is not None
        host = self.network.host(index)
        socket = self._sockets / host / "sidecar.sock"
        socket.parent.mkdir(exist_ok=True)
        settings = SidecarSettings(
            worker_id=worker_id(index),
            host=self._sidecar_host.replace("{host}", host),
            listen=f"{host}:{self._ports[index] if index < len(self._ports) else 0}",
            data_dir=self.worker_folder(index) / "rhino",
            socket=socket,
            manager=self.manager,
            cluster_key=self.cluster_key,
        )
        on_host = partial(self.network.command, index)
        return self._own(
            rhino_daemons.start_sidecar(
                f"sidecar-{index}", settings, on_host=on_host, log_dir=self.log_dir, reaper=self._reaper
            )
        )

    def _start_worker(self, index: int) -> Process:
        assert self._reaper is not None
        return self._own(
            spark_daemons.start_worker(
                f"spark-worker-{index}",
                self.network.host(index),
                self.master_url,
                self.shape,
                folder=self.worker_folder(index) / "spark",
                on_host=partial(self.network.command, index),
                log_dir=self.log_dir,
                reaper=self._reaper,
            )
        )

    def _wait_ready(self, master: spark_daemons.Master) -> None:
        if self._managers is not None:
            self._managers.wait()
        for worker in self.workers:
            if worker.sidecar is not None:
                worker.peer_address = rhino_daemons.wait_sidecar(worker.sidecar)
        for worker in self.workers:
            self._wait_registered(worker, master)

    def _wait_registered(self, worker: LocalWorker, master: spark_daemons.Master) -> None:
        worker.spark.wait_for(
            "registration with the master", partial(master.sees, worker.host), timeout_s=spark_daemons.START_TIMEOUT_S
        )


def worker_id(index: int) -> str:
    return f"worker-{index}"
