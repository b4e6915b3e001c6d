"""Executors that are stopped, and send no heartbeat: none is dropped while its sidecar lives, or for a pause."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from benchmarks.burning import burning
from rhino.testing import LocalCluster
from rhino.testing.query_watch import driver_hosts
from tests.spark.queries import QUERIES
from tests.spark.run import Run, assert_equals_batch

pytestmark = [pytest.mark.spark, pytest.mark.nightly, pytest.mark.timeout(300)]
WORKERS = 3
SETTINGS = {"spark.sql.shuffle.partitions": "2"}
SILENCE_S = 14.0  # longer than the silence of a lost node
PAUSES, LONGEST_S = 500, 4.0  # shorter than --lease-s
EVERYBODY_S = 8.0  # longer: nothing is dropped when most are silent at once


@contextmanager
def stopped(pids: Iterable[int]) -> Iterator[None]:
    pids = list(pids)
    assert pids
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


def executor_pids(cluster: LocalCluster, *workers: int) -> set[int]:
    return {pid for index in workers for pid in cluster.workers[index].executor_pids()}


@pytest.mark.parametrize("silent", [(0,), (0, 1, 2)], ids=["one", "all"])
def test_no_executor_is_dropped_while_its_sidecar_lives(tmp_path: Path, silent: tuple[int, ...]) -> None:
    with LocalCluster(tmp_path / "cluster", workers=WORKERS) as cluster:
        spark = cluster.session("silent executors", SETTINGS)
        try:
            run = Run(spark, QUERIES["aggregation"], tmp_path / "query")
            running = run.start()
            run.advance(running, 2)
            before = driver_hosts(spark)
            pids = executor_pids(cluster, 0, 1, 2)
            with stopped(executor_pids(cluster, *silent)):
                ends = time.monotonic() + SILENCE_S
                while time.monotonic() < ends:
                    assert driver_hosts(spark) == before
                    time.sleep(0.2)
            run.advance(running, 2)
            assert executor_pids(cluster, 0, 1, 2) == pids
            running.stop()
            assert_equals_batch(run)
        finally:
            spark.stop()


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("busy", [0, 4])
def test_no_executor_is_dropped_for_a_pause(tmp_path: Path, busy: int) -> None:
    """Executors, sidecars or whole nodes stop for a while, some at once. `busy`: burning processes beside them."""
    chosen = random.Random(busy)
    with LocalCluster(tmp_path / "cluster", workers=WORKERS) as cluster:
        spark = cluster.session("pauses", SETTINGS)
        try:
            run = Run(spark, QUERIES["aggregation"], tmp_path / "query")
            running = run.start("1 second")
            run.advance(running, 2)
            hosts, pids = driver_hosts(spark), executor_pids(cluster, *range(WORKERS))
            pauses = 0
            with burning(busy):
                while pauses < PAUSES:
                    workers = chosen.sample(range(WORKERS), chosen.choice((1, 1, 1, 2, 3)))
                    sidecars = {sidecar.pid for w in workers if (sidecar := cluster.workers[w].sidecar)}
                    executors = executor_pids(cluster, *workers)
                    length_s = min(chosen.expovariate(1.0), LONGEST_S)
                    if len(workers) == WORKERS and chosen.random() < 0.2:
                        length_s = EVERYBODY_S
                    with stopped(chosen.choice((sidecars, executors, executors | sidecars))):
                        time.sleep(length_s)
                    assert driver_hosts(spark) == hosts, f"after {pauses} pauses, and {length_s:.1f} s of {workers}"
                    pauses += len(workers)
                    time.sleep(chosen.uniform(0, 1))
            run.advance(running, 2)
            assert (driver_hosts(spark), executor_pids(cluster, *range(WORKERS))) == (hosts, pids)
            running.stop()
            assert_equals_batch(run)
        finally:
            spark.stop()
