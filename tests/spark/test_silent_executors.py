"""Executors that are stopped, and send no heartbeat: none is dropped while its sidecar lives."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rhino.testing import LocalCluster
from rhino.testing.query_watch import driver_hosts
from tests.spark.queries import QUERIES
from tests.spark.run import Run, assert_equals_batch

pytestmark = [pytest.mark.spark, pytest.mark.nightly, pytest.mark.timeout(300)]
SETTINGS = {"spark.sql.shuffle.partitions": "2"}
SILENCE_S = 14.0  # longer than the silence of a lost node


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
    with LocalCluster(tmp_path / "cluster", workers=3) as cluster:
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
