"""LocalCluster starts, takes faults, and leaves no process behind, however it ends."""

from __future__ import annotations

import os
from pathlib import Path

import psutil
import pytest

from rhino.testing import ClusterError, LocalCluster
from tests.rhino.support.local_cluster import alive, eventually

# The demo in tests/examples kills a worker and leaves no process every time, and tests/spark/test_exactly_once.py kills
# executors.
pytestmark = [pytest.mark.spark, pytest.mark.nightly]


def test_a_job_runs_through_killed_executors_and_workers(tmp_path: Path) -> None:
    with LocalCluster(tmp_path, workers=2, rhino=False) as cluster:
        spark = cluster.session("faults", {"spark.locality.wait": "0"})
        assert spark.range(100).repartition(4).count() == 100
        eventually(lambda: all(w.executor_pids() for w in cluster.workers), "an executor on every worker")
        old = cluster.kill_executor(0)
        eventually(lambda: set(cluster.workers[0].executor_pids()) - set(old), "a new executor")
        taken = cluster.workers[1].pids()
        cluster.kill_worker(1)
        assert alive(taken) == []
        cluster.check()
        assert spark.range(100).repartition(4).count() == 100
        pids = cluster.pids()
        assert len(pids) >= 4  # helper, master, worker, executor
    assert alive(pids) == []
    assert psutil.Process().children(recursive=True) == []


def test_an_exception_inside_ends_everything_with_rhino(tmp_path: Path) -> None:
    pids: list[int] = []

    def fail_inside() -> None:
        with LocalCluster(tmp_path, workers=2) as cluster:
            pids.extend(cluster.pids())
            assert cluster.manager
            before = cluster.workers[0].peer_address
            cluster.restart_sidecar(0)
            assert before.startswith("127.0.0.11:")
            pids.extend(cluster.pids())
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail_inside()
    assert len(set(pids)) >= 8  # helper, manager, two sidecars and a new one, master, two workers
    assert alive(pids) == []


def test_a_daemon_that_dies_is_named(tmp_path: Path) -> None:
    with LocalCluster(tmp_path, workers=1, rhino=False) as cluster:
        os.kill(cluster.workers[0].spark.pid, 9)
        eventually(lambda: not cluster.workers[0].spark.running, "the end of the worker")
        with pytest.raises(ClusterError, match="spark-worker-0 has ended by itself"):
            cluster.check()
