"""The cluster on which the cases are played: three workers, one query in a driver of its own, which or the manager is
led."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Self

import psutil

from rhino.client.overview import JobView, Overview, fetch_overview
from rhino.testing import LocalCluster
from rhino.testing.process import ClusterError, Process
from rhino.testing.reaper import Reaper
from rhino.testing.spark_daemons import spark_env
from rhino_core import failpoints
from rhino_core.errors import RhinoError
from tests.chaos import queries
from tests.crashes.puppeteer import Puppeteer

WORKERS = 3
PARTITIONS = 4
COPIES = 2
NAME = "aggregation"
POLL_S = 0.1
QUIET_TIMEOUT_S = 150.0
POINTS = [name for name in failpoints.NAMES if name.startswith("handover.")]


def _stops(points: Sequence[str]) -> str:
    return ",".join(f"{point}=stop" for point in points)


class Stage:
    """Context manager; `folder` receives everything."""

    def __init__(self, folder: Path, *, name: str = NAME, driver_points: Sequence[str] = ()) -> None:
        """`driver_points`: the driver is led at these; without them, the manager at `POINTS`."""
        self.folder = folder
        self.name = name
        self._driver_points = driver_points
        armed = "" if driver_points else _stops(POINTS)
        self.cluster = LocalCluster(folder / "cluster", workers=WORKERS, manager_failpoints=armed)
        if driver_points:
            self.puppeteer = Puppeteer(self._jvm_pid, folder / "spark-driver.log")
        else:
            self.puppeteer = Puppeteer(lambda: self.cluster.manager_pid, self.cluster.log_dir / "rhino-manager.log")
        self.checked = 0  # batches whose output has been compared
        self._reaper = Reaper()
        self._driver: Process | None = None
        self._jvm: tuple[Process, psutil.Process] | None = None

    def __enter__(self) -> Self:
        try:
            self.puppeteer.start()
            self.cluster.start()
            self.start_driver()
            self.wait(lambda: self.logged() >= 2, "the first batches")
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *unused: object) -> None:
        self.close()

    def close(self) -> None:
        if self._driver is not None:
            self._driver.kill()
        self.cluster.stop()
        self.puppeteer.end()
        self._reaper.close()

    # ---- the driver

    def start_driver(self) -> None:
        conf = self.folder / "conf.json"
        settings = {"spark.sql.shuffle.partitions": str(PARTITIONS), "spark.rhino.replicationFactor": str(COPIES - 1)}
        conf.write_text(json.dumps(self.cluster.conf("crashes", settings)))
        command = [sys.executable, "-m", "tests.chaos.driver", str(conf), str(self.folder), self.name]
        env = spark_env("127.0.0.1", {failpoints.VARIABLE: _stops(self._driver_points)})
        self._driver = Process("crashes-driver", command, log_dir=self.cluster.log_dir, env=env, reaper=self._reaper)

    def kill_driver(self) -> None:
        assert self._driver is not None
        self._driver.kill()

    def _jvm_pid(self) -> int:
        """Of the driver's JVM. Spark's launcher has the same arguments, and its pid may soon be another process's."""
        driver = self._driver
        if self._jvm is None or self._jvm[0] is not driver or not self._jvm[1].is_running():
            pids = [] if driver is None else driver.children("org.apache.spark.deploy.SparkSubmit")
            if driver is None or not pids:
                time.sleep(POLL_S)
                raise ClusterError("the driver has no JVM yet")
            self._jvm = driver, psutil.Process(pids[0])
        return self._jvm[1].pid

    def logged(self) -> int:
        """Batches in Spark's commit log."""
        return queries.logged(self.folder, self.name)

    # ---- looking

    def wait(self, condition: Callable[[], object], what: str, timeout_s: float = QUIET_TIMEOUT_S) -> None:
        """Polls; AssertionError naming `what`. An unreachable manager counts as "not yet"."""
        deadline = time.monotonic() + timeout_s
        while not self._holds(condition):
            assert time.monotonic() < deadline, f"{what}: not within {timeout_s:g} s\n{self.picture()}"
            time.sleep(POLL_S)

    def _holds(self, condition: Callable[[], object]) -> bool:
        try:
            return bool(condition())
        except RhinoError:
            return False

    def overview(self) -> Overview:
        return fetch_overview(self.cluster.manager)

    def job(self) -> JobView | None:
        return next((j for j in self.overview().jobs if j.name == self.name and j.connected), None)

    def wait_until_quiet(self) -> None:
        """Every worker and every copy is there, and the newest batch ran where it is meant to; no handover runs."""
        self.wait(lambda: all(w.executor_pids() for w in self.cluster.workers), "an executor on every worker")
        self.wait(self._quiet, "every copy and every virtual node in its place")

    def _quiet(self) -> bool:
        overview, job = self.overview(), self.job()
        if job is None or overview.handovers or any(w.state != "live" for w in overview.workers):
            return False
        placed = [n.desired_worker and n.desired_worker == n.actual_worker for n in job.virtual_nodes]
        groups = [g for g in overview.groups if g.group.job == job.job]
        whole = [len(g.members) == COPIES and all(m.whole and m.state == "live" for m in g.members) for g in groups]
        return len(placed) == len(groups) == PARTITIONS and all(placed) and all(whole) and not job.missed_now

    def picture(self) -> str:
        """For the message of a failure."""
        try:
            overview = self.overview()
        except RhinoError as error:
            return f"the manager: {error}"
        lines = [f"{self.logged()} batches; workers {[(w.worker_id, w.state) for w in overview.workers]}"]
        lines += [f"{g.group}: {[(m.worker_id, m.whole, m.state) for m in g.members]}" for g in overview.groups]
        lines += [f"{n}" for j in overview.jobs for n in j.virtual_nodes]
        return "\n".join([*lines, *map(str, overview.handovers)])
