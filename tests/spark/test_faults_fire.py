"""A real Prometheus scrapes the cluster of a running query, and faults fire the alerts about state, moves and archive.

tests/deploy/test_faults_fire.py has the alerts of daemons without queries.
"""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rhino import HandoverClient
from rhino.cli.main import app
from rhino.testing import ClusterShape, LocalCluster
from rhino.testing.network import Loopback
from rhino.testing.reaper import Reaper
from rhino.testing.session import driver_pid
from tests.deploy.scraping import Prometheus
from tests.rhino_core.support.metrics import free_port
from tests.spark.queries import QUERIES
from tests.spark.run import Run, placed
from tests.worker_runtime.tmpfs import read_only

pytestmark = [pytest.mark.spark, pytest.mark.nightly, pytest.mark.timeout(600)]
PARTITIONS = 12
SETTINGS = {
    "spark.sql.shuffle.partitions": str(PARTITIONS),
    # Snapshots are data files: scrubs and drills read them.
    "spark.sql.streaming.stateStore.minDeltasForSnapshot": "3",
    "spark.sql.streaming.stateStore.maintenanceInterval": "500ms",
}


class Scraped(Loopback):
    """Sidecar i serves metrics on `ports[i]`."""

    def __init__(self, workers: int) -> None:
        self.ports = [free_port() for _ in range(workers)]

    def command(self, index: int, command: Sequence[str]) -> list[str]:
        more = ["--metrics-port", str(self.ports[index])] if "sidecar" in command else []
        return [*command, *more]


@contextmanager
def stopped(pid: int) -> Iterator[None]:
    """The process hangs."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def damage(folder: Path, pattern: str) -> None:
    """One byte of each of the files is another one."""
    found = [path for path in folder.rglob(pattern) if path.is_file()]
    assert found, f"{folder}/{pattern}"
    for path in found:
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 1
        path.chmod(0o600)
        path.write_bytes(content)


class Scene:
    """A cluster of three workers, a query on it, and Prometheus. `options`: of the manager."""

    def __init__(self, folder: Path, stack: ExitStack, options: Sequence[str] = ()) -> None:
        port, network = free_port(), Scraped(3)
        shape = ClusterShape(manager_options=("--metrics-port", str(port), *options))
        self.cluster = stack.enter_context(LocalCluster(folder / "cluster", workers=3, shape=shape, network=network))
        reaper = stack.enter_context(Reaper())
        sidecars = {f"worker-{i}": f"{network.host(i)}:{port}" for i, port in enumerate(network.ports)}
        jobs = {"rhino-manager": {"manager": f"127.0.0.1:{port}"}, "rhino-sidecar": sidecars}
        self.prometheus = Prometheus(folder, reaper, jobs)
        stack.callback(self.prometheus.stop)
        self.run = Run(self.cluster.session("alerts", SETTINGS), QUERIES["aggregation"], folder)
        self.running = self.run.start()
        self.prometheus.wait_for_all()
        self.run.advance(self.running, 5)

    def sidecar(self, index: int) -> int:
        """Its process."""
        process = self.cluster.workers[index].sidecar
        assert process is not None
        return process.pid

    def data(self, index: int) -> Path:
        return self.cluster.worker_folder(index) / "rhino"


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as made:
        yield made


def test_faults_of_an_archive_fire_their_alerts(tmp_path: Path, stack: ExitStack) -> None:
    archive = tmp_path / "archive"
    archive.mkdir()
    options = ("--archive", str(archive), "--archive-every-s", "1", "--archive-drill-every-s", "1")
    scene = Scene(tmp_path, stack, options)
    fires = scene.prometheus.wait_for_alerts
    scene.running.stop()
    result = CliRunner().invoke(app, ["archive", "now", "--wait", "--manager", scene.cluster.manager])
    assert result.exit_code == 0, result.output
    damage(archive, "packs/*")
    fires(("RhinoRestoreDrillFailed", "manager"))
    archive.rename(archive.with_name("away"))
    scene.run.start()
    fires(("RhinoArchiveOld", "manager"), ("RhinoRestoreDrillsMissing", "manager"))


def test_faults_of_workers_fire_the_alerts_of_a_query(tmp_path: Path, stack: ExitStack) -> None:
    scene = Scene(tmp_path, stack)
    cluster, fires = scene.cluster, scene.prometheus.wait_for_alerts
    name = scene.run.query.name
    placed(cluster, name, PARTITIONS)

    damage(scene.data(0) / "store", "*.zip")
    result = CliRunner().invoke(app, ["scrub", "--worker", "worker-0", "--manager", cluster.manager])
    assert result.exit_code == 0, result.output
    fires(("RhinoScrubFoundDamage", "worker-0"))

    for index in (0, 1):  # all tasks run on worker-2, which lacks some state
        cluster.workers[index].spark.kill()
        cluster.workers[index].killed = True
    fires(("RhinoMisses", "manager"), ("RhinoLoadsRemote", ""))
    with stopped(scene.sidecar(1)):  # commits wait for it
        fires(("RhinoLagVersions", "manager"), ("RhinoLagBytes", "worker-2"))
    fires(("RhinoCommitsSlow", "worker-2"))

    cluster.restart_worker(0)
    moved = placed(cluster, name, PARTITIONS).virtual_nodes[0]
    other = 2 if moved.desired_worker == "worker-0" else 0
    with HandoverClient(cluster.manager) as client, stopped(driver_pid()):
        client.start(name, [moved.virtual_node], f"worker-{other}", deadline_s=90)
        cluster.kill_sidecar(other)
        fires(("RhinoHandoverFailed", "manager"))
    cluster.restart_sidecar(other)
    with read_only(scene.data(0)):
        fires(("RhinoDiskFailing", "worker-0"))
    cluster.restart_sidecar(0)
    scene.run.advance(scene.running, 5)

    cluster.kill_worker(2)  # these two have all copies, because the disk of worker-0 failed
    cluster.kill_sidecar(1)
    fires(("RhinoUnderReplicated", "manager"))
    fires(("RhinoLoadsUnavailable", "worker-0"), ("RhinoQueryWithoutBatch", "manager"))
    for index in (1, 2):
        shutil.rmtree(scene.data(index))
        cluster.restart_sidecar(index)
    fires(("RhinoStateLost", "worker-0"))
