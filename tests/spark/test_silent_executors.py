"""All machines have too little time at once, so that no executor sends a heartbeat: Spark drops none of them."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rhino.testing import LocalCluster
from rhino.testing.query_watch import driver_hosts
from tests.spark.queries import QUERIES
from tests.spark.run import Run, assert_equals_batch

pytestmark = [pytest.mark.spark, pytest.mark.nightly, pytest.mark.timeout(300)]
SETTINGS = {"spark.sql.shuffle.partitions": "2", "spark.storage.blockManagerHeartbeatTimeoutMs": "8s"}
SILENCE_S = 14.0  # longer than the time-out and Spark's look for silent executors


@contextmanager
def all_stopped(cluster: LocalCluster) -> Iterator[None]:
    pids = [pid for worker in cluster.workers for pid in worker.executor_pids()]
    assert pids
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


def test_no_executor_is_dropped_while_all_are_silent(tmp_path: Path) -> None:
    with LocalCluster(tmp_path / "cluster", workers=2) as cluster:
        spark = cluster.session("silent executors", SETTINGS)
        try:
            run = Run(spark, QUERIES["aggregation"], tmp_path / "query")
            running = run.start()
            run.advance(running, 2)
            before = driver_hosts(spark)
            pids = {pid for worker in cluster.workers for pid in worker.executor_pids()}
            with all_stopped(cluster):
                ends = time.monotonic() + SILENCE_S
                while time.monotonic() < ends:
                    assert driver_hosts(spark) == before
                    time.sleep(0.2)
            run.advance(running, 2)
            assert {pid for worker in cluster.workers for pid in worker.executor_pids()} == pids
            running.stop()
            assert_equals_batch(run)
        finally:
            spark.stop()
