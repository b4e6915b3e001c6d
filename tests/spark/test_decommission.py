"""A node with notice: its executor is decommissioned, and the next batch runs beside the replicas of its state."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from rhino.client.overview import fetch_overview
from rhino.testing import LocalCluster
from tests.spark.conftest import wait_for
from tests.spark.queries import QUERIES
from tests.spark.run import Run, assert_equals_batch, job
from tests.spark.support.drain import NAME, PARTITIONS, busiest, loads

pytestmark = [pytest.mark.spark, pytest.mark.nightly, pytest.mark.timeout(300)]
SETTINGS = {
    "spark.sql.shuffle.partitions": str(PARTITIONS),
    "spark.rhino.replicationFactor": "1",  # of three workers one has no copy of a group
    "spark.decommission.enabled": "true",
    # The executor moves its shuffle files before it ends: for some batches it is there and takes no tasks.
    "spark.storage.decommission.enabled": "true",
    "spark.storage.decommission.shuffleBlocks.enabled": "true",
    "spark.storage.decommission.replicationReattemptInterval": "10s",
}


@pytest.fixture
def own_cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    """Not the one of the other tests: a worker of it leaves."""
    with LocalCluster(tmp_path / "cluster", workers=3) as running:
        yield running


@pytest.fixture
def spark(own_cluster: LocalCluster) -> Iterator[SparkSession]:
    session = own_cluster.session("decommission", SETTINGS)
    yield session
    session.stop()


def takes_tasks(spark: SparkSession, host: str) -> bool:
    scheduler: Any = spark.sparkContext._jsc.sc().taskScheduler()
    return bool(scheduler.hasExecutorsAliveOnHost(host))


def test_no_state_is_fetched_after_the_notice(own_cluster: LocalCluster, spark: SparkSession, tmp_path: Path) -> None:
    leaving: list[str] = []
    since: list[int] = []

    def notice(batch_id: int) -> None:
        """Between the tasks of one batch and those of the next: the worker of Spark passes a cloud's notice on."""
        if leaving and not since:
            worker = own_cluster.workers[int(leaving[0].removeprefix("worker-"))]
            os.kill(worker.spark.pid, signal.SIGPWR)
            wait_for(lambda: not takes_tasks(spark, worker.host), "Spark has taken the notice")
            since.append(batch_id + 1)

    run = Run(spark, QUERIES[NAME], tmp_path / "query")
    running = run.start(written=notice)
    run.advance(running, 4)
    worker, count = busiest(own_cluster)
    leaving.append(worker)
    wait_for(lambda: since, "the notice")
    run.advance(running, 8)
    figures = loads(running, since[0])
    assert figures["rhinoCommitMs"] > 0, "figures are reported"
    assert (figures["rhinoPreparesRemote"], figures["rhinoFetchedBytes"]) == (0, 0)
    view = job(own_cluster, NAME)
    assert view is not None
    assert worker not in {place for n in view.virtual_nodes for place in (n.desired_worker, n.actual_worker)}
    owners = {group.members[0].worker_id for group in fetch_overview(own_cluster.manager).groups}
    assert (count >= 2, worker in owners) == (True, False)
    running.stop()
    assert_equals_batch(run)
