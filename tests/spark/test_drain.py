"""A worker of a running query is drained in steps, said to be safe to remove, and killed: nothing is read remotely."""

from __future__ import annotations

import dataclasses
import json
import re
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from rhino import HandoverClient, Kind, Phase, Strategy
from rhino.client.overview import fetch_overview
from rhino.testing import LocalCluster
from tests.spark.conftest import wait_for
from tests.spark.queries import QUERIES, ROWS_PER_BATCH, aggregation
from tests.spark.run import Run, assert_equals_batch, job
from tests.spark.support.drain import NAME, PARTITIONS, busiest, loads

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]


@pytest.fixture
def own_cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    """Not the one of the other tests: a worker of it is killed."""
    with LocalCluster(tmp_path / "cluster", workers=3) as running:
        yield running


@pytest.fixture
def spark(own_cluster: LocalCluster) -> Iterator[SparkSession]:
    shown = {"spark.ui.enabled": "true", "spark.ui.port": "0"}
    session = own_cluster.session("drain", {"spark.sql.shuffle.partitions": str(PARTITIONS)} | shown)
    yield session
    session.stop()


def rows_told(cluster: LocalCluster) -> int:
    view = job(cluster, NAME)
    nodes = view.virtual_nodes if view else ()
    return sum(node.rows or 0 for node in nodes if node.task_s)


def nothing_needs(cluster: LocalCluster, worker: str, *, ran_there: bool = False) -> None:
    """What "safe to remove" must mean."""
    view = job(cluster, NAME)
    assert view is not None
    assert worker not in {node.desired_worker for node in view.virtual_nodes}
    assert (worker in {node.actual_worker for node in view.virtual_nodes}) == ran_there
    for group in fetch_overview(cluster.manager).groups:
        whole = {m.worker_id for m in group.members if m.whole and m.state == "live"} - {worker}
        assert len(whole) >= 2, group


def the_driver_shows_it(spark: SparkSession, cluster: LocalCluster, worker: str, moved: int) -> None:
    """In a tab of Spark's page, and among its metrics."""
    page = spark.sparkContext.uiWebUrl
    with urllib.request.urlopen(f"{page}/rhino/", timeout=30) as answer:
        tab = answer.read().decode()
    assert f"The manager at {cluster.manager} is connected." in tab
    rows = re.findall(r"<tr>\s*<td>(.*?)</td>\s*<td>(.*?)</td>", tab)
    assert {query for query, _ in rows} == {NAME}
    assert {its for _, its in rows} == {one.worker_id for one in cluster.workers} - {worker}
    with urllib.request.urlopen(f"{page}/metrics/json/", timeout=30) as answer:
        metrics = json.load(answer)
    (connected,) = (its["value"] for name, its in metrics["gauges"].items() if name.endswith("managerConnected"))
    (count,) = (its["count"] for name, its in metrics["counters"].items() if name.endswith("virtualNodesMoved"))
    assert (connected, count) == (1, moved)


def test_a_drained_worker_is_killed_and_nobody_notices(
    own_cluster: LocalCluster, spark: SparkSession, tmp_path: Path
) -> None:
    run = Run(spark, QUERIES[NAME], tmp_path / "query")
    running = run.start()
    run.advance(running, 4)
    worker, count = busiest(own_cluster)
    with HandoverClient(own_cluster.manager) as client:
        seen = client.drain(worker, strategy=Strategy(Kind.BATCHED, 1), deadline_s=60)
        client.wait_until_safe(worker, timeout_s=100)
        nothing_needs(own_cluster, worker)
        ended = client.wait(seen.handover_id)
    assert (ended.phase, len(ended.steps)) == (Phase.CONFIRMED, count)
    assert count >= 2
    assert ended.measured is not None
    epochs = [epoch for step in ended.steps for epoch in step.configuration_epochs.values()]
    assert epochs == sorted(set(epochs)), "each step has its own"
    the_driver_shows_it(spark, own_cluster, worker, count)
    since = run.logged()
    own_cluster.kill_worker(int(worker.removeprefix("worker-")))
    run.advance(running, 4)
    figures = loads(running, since)
    assert figures["rhinoCommitMs"] > 0, "figures are reported"
    assert (figures["rhinoPreparesRemote"], figures["rhinoFetchedBytes"]) == (0, 0)
    keys = QUERIES[NAME].batch(spark, run.logged()).count()
    wait_for(lambda: rows_told(own_cluster) == keys, f"{keys} rows over all virtual nodes")
    running.stop()
    assert_equals_batch(run)
    view = job(own_cluster, NAME)
    assert view is None or worker not in {node.desired_worker for node in view.virtual_nodes}


@pytest.mark.nightly
@pytest.mark.parametrize("restarted", [False, True])
def test_a_worker_of_an_idle_query_is_drained_and_killed(
    own_cluster: LocalCluster, spark: SparkSession, tmp_path: Path, restarted: bool
) -> None:
    """Nothing runs while it is: the next batch finds all state where it is, even if it is the first of its run."""
    source = tmp_path / "source"
    source.mkdir()

    def feed(batch: int) -> None:
        rows = spark.range(batch * ROWS_PER_BATCH, (batch + 1) * ROWS_PER_BATCH).withColumnRenamed("id", "value")
        rows.toPandas().to_parquet(source / ".coming")
        (source / ".coming").rename(source / f"{batch}.parquet")

    def stream(session: SparkSession) -> DataFrame:
        files = session.readStream.schema("value bigint").option("maxFilesPerTrigger", 1).parquet(str(source))
        return aggregation(files)

    run = Run(spark, dataclasses.replace(QUERIES[NAME], stream=stream), tmp_path / "query")
    for batch in range(3):
        feed(batch)
    running = run.start()
    run.advance(running, 3)
    worker, count = busiest(own_cluster)
    if restarted:
        running.stop()
        wait_for(lambda: job(own_cluster, NAME) is None, "the end of the query is known")
        running = run.start()
        wait_for(lambda: job(own_cluster, NAME) is not None, "its next run is known, which has no batch")
    with HandoverClient(own_cluster.manager) as client:
        seen = client.drain(worker, strategy=Strategy(Kind.BATCHED, 1), deadline_s=60)
        client.wait_until_safe(worker, timeout_s=100)
        nothing_needs(own_cluster, worker, ran_there=True)
        ended = client.wait(seen.handover_id)
    assert (ended.phase, ended.confirmed_batch_id, len(ended.steps)) == (Phase.CONFIRMED, -1, count)
    assert "is idle" in ended.steps[0].reason
    assert run.logged() == 3
    own_cluster.kill_worker(int(worker.removeprefix("worker-")))
    for batch in (3, 4):
        feed(batch)
    run.advance(running, 2)
    figures = loads(running, 3)
    assert figures["rhinoCommitMs"] > 0, "figures are reported"
    assert (figures["rhinoPreparesRemote"], figures["rhinoFetchedBytes"]) == (0, 0)
    view = job(own_cluster, NAME)
    assert view is not None
    assert not any(node.misses for node in view.virtual_nodes)
    running.stop()
    assert_equals_batch(run)
