"""Executors that Spark itself removes and starts: dynamic allocation with shuffle tracking, and decommissioning."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from rhino.testing import ClusterShape, LocalCluster
from tests.spark.conftest import wait_for
from tests.spark.queries import QUERIES
from tests.spark.run import Run, assert_equals_batch, job

# Each executor that comes is a JVM that starts.
pytestmark = [pytest.mark.spark, pytest.mark.nightly, pytest.mark.timeout(900)]
NAME = "aggregation"
ALLOCATION = "spark.dynamicAllocation"
SETTINGS = {
    f"{ALLOCATION}.enabled": "true",
    f"{ALLOCATION}.shuffleTracking.enabled": "true",
    f"{ALLOCATION}.shuffleTracking.timeout": "1s",
    f"{ALLOCATION}.minExecutors": "0",
    f"{ALLOCATION}.maxExecutors": "2",
    f"{ALLOCATION}.executorIdleTimeout": "3s",
    f"{ALLOCATION}.schedulerBacklogTimeout": "1s",
    "spark.decommission.enabled": "true",
    "spark.storage.decommission.enabled": "true",
    "spark.scheduler.minRegisteredResourcesRatio": "0",  # in the beginning there is no executor
    "spark.sql.shuffle.partitions": "4",
}
WAIT_S = 180


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    shape = ClusterShape(worker_cores=1, executor_memory_mb=480)
    with LocalCluster(tmp_path / "cluster", workers=2, shape=shape) as running:
        yield running


class Executors:
    """The executors that Spark has at the moment."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._scheduler: Any = spark.sparkContext._jsc.sc().schedulerBackend()

    def ids(self) -> set[str]:
        found = self._scheduler.getExecutorIds()
        return {str(found.apply(n)) for n in range(found.size())}

    def reasons(self) -> dict[str, str]:
        """Why each executor is gone, in Spark's words."""
        found = self._spark.sparkContext._jsc.sc().statusStore().executorList(False)
        all_ = [found.apply(n) for n in range(found.size())]
        return {str(one.id()): str(one.removeReason().get()) for one in all_ if one.removeReason().isDefined()}

    def decommission_one(self) -> str:
        """Decommissions an executor, as a node that is about to go does it. Returns its id."""
        found = ""

        def accepted() -> bool:
            nonlocal found
            found = next(filter(self._decommission, sorted(self.ids())), "")
            return bool(found)

        wait_for(accepted, "an executor that is not going already", WAIT_S)
        return found

    def _decommission(self, executor: str) -> bool:
        jvm: Any = self._spark.sparkContext._jvm
        why = jvm.org.apache.spark.scheduler.ExecutorDecommissionInfo("of the test", jvm.scala.Option.empty())
        return bool(self._scheduler.decommissionExecutor(executor, why, False, False))


def test_the_output_is_exact_while_executors_go_and_come(cluster: LocalCluster, tmp_path: Path) -> None:
    spark = cluster.session("dynamic", SETTINGS)
    try:
        executors = Executors(spark)
        used: list[set[str]] = []

        def all_leave(batch_id: int) -> None:
            if batch_id < 3:
                used.append(executors.ids())
                wait_for(lambda: not executors.ids(), f"batch {batch_id}: idle executors leave", WAIT_S)

        run = Run(spark, QUERIES[NAME], tmp_path)
        running = run.start(written=all_leave)
        wait_for(lambda: run.logged() >= 4 or running.exception(), "four batches", 2 * WAIT_S)
        assert running.exception() is None
        assert len(used) == 3
        assert all(used), "each batch had executors"
        assert sum(map(len, used)) == len(set.union(*used)), "of its own"

        gone = executors.decommission_one()
        wait_for(lambda: gone not in executors.ids(), f"executor {gone} leaves", WAIT_S)
        run.advance(running, 3)
        view = job(cluster, NAME)
        assert view is not None
        assert all(node.actual_worker for node in view.virtual_nodes)
        running.stop()
        reasons = executors.reasons()
        assert {gone, *set.union(*used)} <= reasons.keys()
        assert all("decommission" in reason.lower() for reason in reasons.values()), reasons
        assert_equals_batch(run)
    finally:
        spark.stop()
