"""Several executors on each worker, of which one goes. Rhino and Spark have different names for the nodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from rhino.client.overview import fetch_overview
from rhino.testing import ClusterShape, LocalCluster
from tests.spark.conftest import wait_for
from tests.spark.queries import QUERIES
from tests.spark.run import Run, assert_equals_batch, job, placed

# DivisionSuite has the shares, and tests/chaos kills executors: here are both together.
pytestmark = [pytest.mark.spark, pytest.mark.nightly, pytest.mark.timeout(600)]
PARTITIONS = 8
NAME = "aggregation"
SETTINGS = {
    "spark.sql.shuffle.partitions": str(PARTITIONS),
    "spark.executor.cores": "1",
    "spark.executor.memory": "480m",
    "spark.locality.wait": "30s",  # every task waits for its slot, so that it runs where it is meant to
    "spark.log.level": "INFO",
}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    shape = ClusterShape(worker_cores=2, executor_memory_mb=960)
    with LocalCluster(tmp_path / "cluster", workers=2, shape=shape, sidecar_host="node-of-{host}") as running:
        yield running


class Executors:
    """The executors of a query by Spark's own records."""

    def __init__(self, spark: SparkSession, running: StreamingQuery) -> None:
        self._context = spark.sparkContext._jsc.sc()
        self._running = running

    def of_last_batch(self) -> dict[int, tuple[str, str]]:
        """Executor and host of each partition's task in the last stage of the newest job that has ended."""
        tracker, store = self._context.statusTracker(), self._context.statusStore()
        jobs = [tracker.getJobInfo(number).get() for number in sorted(tracker.getJobIdsForGroup(self._running.runId))]
        stage = max(next(j for j in reversed(jobs) if j.status().toString() == "SUCCEEDED").stageIds())
        tasks = store.taskList(stage, store.lastStageAttempt(stage).attemptId(), 1000)
        found = [tasks.apply(i) for i in range(tasks.size())]
        return {t.index(): (t.executorId(), t.host().partition(":")[0]) for t in found if t.status() == "SUCCESS"}

    def settled(self, run: Run, ids: set[str]) -> dict[int, tuple[str, str]]:
        """Where the tasks of a batch ran, once these executors share them."""
        found: dict[int, tuple[str, str]] = {}

        def shared() -> bool:
            nonlocal found
            run.advance(self._running, 1)
            found = self.of_last_batch()
            return len(found) == PARTITIONS and {executor for executor, _ in found.values()} == ids

        wait_for(shared, f"executors {sorted(ids)} have all tasks")
        return found

    def kill(self, executor: str) -> None:
        assert self._context.killExecutor(executor)


def test_executors_of_a_worker_share_its_state_and_the_loss_of_one_moves_only_its_own(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    spark = cluster.session("executors", SETTINGS)
    try:
        started = spark.sparkContext._jsc.sc().statusTracker()
        wait_for(lambda: len(started.getExecutorInfos()) == 5, "four executors beside the driver", timeout_s=180)
        run = Run(spark, QUERIES[NAME], tmp_path)
        running = run.start()
        run.advance(running, 3)
        placed(cluster, NAME, PARTITIONS)
        executors = Executors(spark, running)
        first = executors.settled(run, {"0", "1", "2", "3"})
        assert_beside_their_state(cluster, first)
        per_worker = Counter(host for _, host in first.values())
        for executor, host in set(first.values()):
            assert list(first.values()).count((executor, host)) <= -(-per_worker[host] // 2), "each has its share"

        lost, its_host = first[0]
        executors.kill(lost)
        second = executors.settled(run, {"0", "1", "2", "3"} - {lost})
        assert {p for p in first if first[p] != second[p]} == {p for p in first if first[p][0] == lost}
        assert {host for p, (_, host) in second.items() if first[p][0] == lost} == {its_host}, "on the same worker"

        assert_beside_their_state(cluster, second)
        view = job(cluster, NAME)
        assert view is not None
        assert view.missed_now == 0
        running.stop()
        assert_equals_batch(run)
    finally:
        spark.stop()


def assert_beside_their_state(cluster: LocalCluster, ran: dict[int, tuple[str, str]]) -> None:
    """Every task ran on the worker that is desired for it, by whatever names its node has."""
    overview, view = fetch_overview(cluster.manager), job(cluster, NAME)
    assert {w.host for w in overview.workers} == {f"node-of-{w.host}" for w in cluster.workers}
    assert view is not None
    host_of = {worker.worker_id: worker.host for worker in cluster.workers}
    desired = {int(n.virtual_node.partition("/")[2]): host_of[n.desired_worker] for n in view.virtual_nodes}
    assert {partition: host for partition, (_, host) in ran.items()} == desired
