"""A sidecar, the driver and the manager die by kill -9 under a running query: it goes on, and its output is exact."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rhino.testing import LocalCluster
from tests.spark.conftest import SharedSession, wait_for
from tests.spark.queries import QUERIES
from tests.spark.run import Run, assert_equals_batch, job

pytestmark = [pytest.mark.spark, pytest.mark.timeout(240)]
LONG_S = 75.0  # in which the pauses between a gRPC channel's own attempts to connect have grown to half a minute


@contextmanager
def _manager_back_once_missed(cluster: LocalCluster) -> Iterator[None]:
    """The manager is killed, and comes back only after a driver has said that it waits for it."""
    log = cluster.log_dir / "spark-driver.log"
    cluster.kill_manager()

    def come_back() -> None:
        wait_for(lambda: f"no Rhino manager answers at {cluster.manager} yet" in log.read_text(), "a driver that waits")
        cluster.restart_manager()

    back = threading.Thread(target=come_back)
    back.start()
    try:
        yield
    finally:
        back.join()


@pytest.mark.nightly
def test_a_driver_misses_a_manager_that_falls_silent(cluster: LocalCluster, tmp_path: Path) -> None:
    """Its connections stay as they are: only an unanswered probe tells. Sent after 10 s, waited for 2 s."""
    spark = cluster.session("silent manager", {"spark.sql.shuffle.partitions": "4"})
    log = cluster.log_dir / "spark-driver.log"
    seen = len(log.read_text())
    run = Run(spark, QUERIES["aggregation"], tmp_path)
    running = run.start()
    run.advance(running, 2)
    os.kill(cluster.manager_pid, signal.SIGSTOP)
    try:
        silent = time.monotonic()
        wait_for(lambda: "Queries go on" in log.read_text()[seen:], "a driver that misses the manager", timeout_s=60)
        took_s = time.monotonic() - silent
        run.advance(running, 2)
    finally:
        os.kill(cluster.manager_pid, signal.SIGCONT)
    assert took_s < 14
    wait_for(lambda: job(cluster, "aggregation"), "the query introduces itself again")
    running.stop()
    spark.stop()


def test_output_is_exact_with_a_restarted_sidecar_and_a_killed_driver(
    cluster: LocalCluster, shared: SharedSession, tmp_path: Path
) -> None:
    spark = shared.open()
    spark.conf.set("spark.sql.shuffle.partitions", "4")  # this session does not come to its end
    run = Run(spark, QUERIES["aggregation"], tmp_path)
    running = run.start()
    run.advance(running, 2)
    executors = [worker.executor_pids() for worker in cluster.workers]
    assert all(executors)
    cluster.restart_sidecar(1)
    run.advance(running, 2)
    assert [worker.executor_pids() for worker in cluster.workers] == executors, "healthy executors were dropped"
    cluster.kill_driver()
    logged = run.logged()
    with _manager_back_once_missed(cluster):
        shared.open()
    with shared.with_settings({"spark.sql.shuffle.partitions": "4"}) as spark:
        run = Run(spark, QUERIES["aggregation"], tmp_path)
        assert run.logged() == logged
        running = run.start()
        run.advance(running, 2)
        running.stop()
        assert_equals_batch(run)


@pytest.mark.nightly
def test_executors_attach_at_once_to_a_sidecar_that_was_away_for_long(cluster: LocalCluster, tmp_path: Path) -> None:
    spark = cluster.session("long away", {"spark.sql.shuffle.partitions": "4"})
    try:
        run = Run(spark, QUERIES["aggregation"], tmp_path)
        running = run.start()
        run.advance(running, 2)
        cluster.kill_sidecar(1)
        time.sleep(LONG_S)
        cluster.restart_sidecar(1)
        back = time.monotonic()
        run.advance(running, 1)
        assert time.monotonic() - back < 12
        running.stop()
        assert_equals_batch(run)
    finally:
        spark.stop()
