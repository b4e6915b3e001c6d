"""Shuffle files that are gone: Spark repeats a stage whose tasks have committed state in the same batch already."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from rhino.testing import LocalCluster
from rhino.testing.session import close_driver
from tests.spark.conftest import wait_for
from tests.spark.queries import ROWS_PER_BATCH, StatefulQuery, aggregation, consumed, source
from tests.spark.run import Run, assert_equals_batch

pytestmark = [pytest.mark.spark, pytest.mark.nightly, pytest.mark.timeout(600)]
SETTINGS = {
    "spark.sql.shuffle.partitions": "4",
    "spark.sql.streaming.stateStore.minDeltasForSnapshot": "2",
    "spark.sql.streaming.stateStore.maintenanceInterval": "300ms",
}
READERS = 9  # tasks that read the output of the stateful ones; more than there are slots
BATCH = 2  # whose shuffle files go
HELD_MS = 500  # for each of about ten rows of a reader


def read_again(rows: DataFrame) -> DataFrame:
    """The same rows behind another shuffle. In BATCH its readers take seconds, so that the last ones start late."""
    of_batch = F.col("m").between(BATCH * ROWS_PER_BATCH, (BATCH + 1) * ROWS_PER_BATCH - 1)
    held = F.expr(f"reflect('java.lang.Thread', 'sleep', bigint({HELD_MS}))")
    return rows.repartition(READERS, "k").where(F.when(of_batch, held).otherwise("").isNotNull())


def shuffle_files(cluster: LocalCluster) -> list[list[Path]]:
    """The shuffle files of every worker, of all applications that it has run."""
    return [
        [path for path in worker.folder.rglob("shuffle_*") if path.suffix in (".data", ".index")]
        for worker in cluster.workers
    ]


def last_written(files: Iterable[Path]) -> int:
    """When the newest was written, in nanoseconds since the epoch; 0 without files."""
    return max((path.stat().st_mtime_ns for path in files), default=0)


def delete_shuffle_files(run: Run, cluster: LocalCluster, deleted: list[Path], done: int = 0) -> None:
    """Those of the worker that wrote one last, while the first readers of BATCH are at work.

    `done`: how many readers have ended before.
    """
    tracker = run.spark.sparkContext.statusTracker()

    def reading() -> bool:
        stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
        readers = [s for s in stages if s and s.numTasks == READERS and s.numCompletedTasks >= done]
        return run.logged() == BATCH and any(s.numActiveTasks for s in readers)

    wait_for(reading, "the second stage reads", timeout_s=300)
    # Other workers may have files of earlier batches and applications only, which nobody reads.
    deleted += max(shuffle_files(cluster), key=last_written)
    for path in deleted:
        path.unlink()


def test_output_and_state_are_exact_when_a_stateful_stage_is_repeated(cluster: LocalCluster, tmp_path: Path) -> None:
    query = StatefulQuery(
        "repeated",
        "update",
        lambda spark: read_again(aggregation(source(spark))),
        lambda spark, batches: aggregation(consumed(spark, batches)),
        key="k",
    )
    log = cluster.log_dir / "spark-driver.log"
    seen = len(log.read_text()) if log.exists() else 0
    spark: SparkSession = cluster.session("stage retry", SETTINGS)
    spark.sparkContext.setLogLevel("INFO")
    deleted: list[Path] = []
    try:
        run = Run(spark, query, tmp_path)
        deleting = threading.Thread(target=delete_shuffle_files, args=(run, cluster, deleted))
        running = run.start()
        deleting.start()
        for _ in range(BATCH + 3):
            run.advance(running, 1)
        deleting.join()
        assert deleted
        running.stop()
        told = log.read_text()[seen:]
        assert "FetchFailed" in told, "no shuffle file was missed"
        assert "Resubmitting" in told, "no stage was repeated"
        running = run.start()  # loads what the repeated tasks have committed
        run.advance(running, 2)
        running.stop()
        assert_equals_batch(run)
    finally:
        close_driver()  # the next session has Spark's own log level again


def random_keys(rows: DataFrame) -> DataFrame:
    """Rows get other keys whenever they are computed. In BATCH the readers take seconds, and the last start late."""
    key = F.expr("cast(cast(java_method('java.lang.Math', 'random') as double) * 89 as bigint)").alias("k")
    sums = (F.count(F.lit(1)).alias("n"), F.sum("value").alias("s"), F.max("value").alias("m"))
    of_batch = F.col("m").between(BATCH * ROWS_PER_BATCH, (BATCH + 1) * ROWS_PER_BATCH - 1)
    held = F.expr(f"reflect('java.lang.Thread', 'sleep', bigint({HELD_MS}))")
    return rows.select(key, "value").groupBy("k").agg(*sums).where(F.when(of_batch, held).otherwise("").isNotNull())


def test_rows_that_are_others_when_they_are_computed_again_end_the_query_and_are_counted_once(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    """A partition has committed its state before the files go from which the others would read.

    Spark sees by a checksum that the files which it makes again have other rows, and ends the batch.
    """
    query = StatefulQuery("random", "update", lambda spark: random_keys(source(spark)), consumed, key="k")
    spark: SparkSession = cluster.session("random keys", SETTINGS | {"spark.sql.shuffle.partitions": str(READERS)})
    deleted: list[Path] = []
    try:
        run = Run(spark, query, tmp_path)
        deleting = threading.Thread(target=delete_shuffle_files, args=(run, cluster, deleted, 1))
        running = run.start()
        deleting.start()
        wait_for(lambda: not running.isActive, "the batch fails", timeout_s=300)
        deleting.join()
        assert deleted
        assert "A shuffle map stage with indeterminate output was failed and retried" in str(running.exception())
        assert run.logged() == BATCH
        running = run.start()
        run.advance(running, 2)
        running.stop()
        batches = run.logged()
        rows = batches * ROWS_PER_BATCH
        assert run.result(batches).agg(F.sum("n"), F.sum("s")).collect() == [(rows, rows * (rows - 1) // 2)]
    finally:
        close_driver()
