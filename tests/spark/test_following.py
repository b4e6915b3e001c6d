"""The driver's part follows each query by itself, with what that query was started with."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from rhino import rhino_checkpoint
from rhino.testing import LocalCluster
from rhino_core.version import rhino_version
from spark_connector.conf import PROVIDER_CLASSES
from spark_connector.query_checkpoint import PROVIDER_KEY
from tests.spark.conftest import SharedSession, wait_for
from tests.spark.queries import QUERIES, events_of, source
from tests.spark.run import Run, hand_over_one, job

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]
RETAINED = "spark.sql.streaming.minBatchesToRetain"
PROGRESS_KEPT = "spark.sql.streaming.numRecentProgressUpdates"
SETTINGS = {
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.streaming.stateStore.minDeltasForSnapshot": "2",
}


@pytest.fixture
def spark(shared: SharedSession) -> Iterator[SparkSession]:
    with shared.with_settings(SETTINGS) as session:
        yield session


def job_id(run: Run) -> str:
    return str(json.loads((run.checkpoint / "metadata").read_text())["id"])


def test_a_query_that_cannot_be_read_does_not_keep_others_from_being_followed(
    cluster: LocalCluster, spark: SparkSession, tmp_path: Path
) -> None:
    log = cluster.log_dir / "spark-driver.log"
    spark.conf.set(RETAINED, "4")
    broken, good = Run(spark, QUERIES["aggregation"], tmp_path / "a"), Run(spark, QUERIES["distinct"], tmp_path / "b")
    first = broken.start()
    broken.advance(first, 3)
    # Floors come from one of these entries, four batches later: Spark may delete the oldest ones in between.
    for batch in range(broken.logged()):
        entry = broken.checkpoint / "commits" / str(batch)
        entry.write_text("no commit log\n")
        entry.with_name(f".{entry.name}.crc").unlink(missing_ok=True)
    broken.advance(first, 6)
    wait_for(lambda: f"cannot follow query {job_id(broken)}" in log.read_text(), "the trouble is told")
    second = good.start()
    good.advance(second, 4)
    followed = good.logged() - 1

    def known() -> bool:
        found = job(cluster, good.query.name)
        return found is not None and found.batch_id >= followed

    wait_for(known, "the other query's batches are known")
    assert first.isActive


def test_the_driver_reports_the_version_of_its_jar(cluster: LocalCluster, spark: SparkSession, tmp_path: Path) -> None:
    run = Run(spark, QUERIES["aggregation"], tmp_path)
    run.advance(run.start(), 1)
    wait_for(lambda: job(cluster, run.query.name), "the query is known")
    found = job(cluster, run.query.name)
    assert found is not None
    assert found.rhino_version == rhino_version()


def first_versions(cluster: LocalCluster, run: Run) -> int:
    """Copies of the changelogs of version 1 on all workers."""
    return sum(1 for w in cluster.workers for _ in w.folder.glob(f"rhino/store/{job_id(run)}/*/*/*/1_*.changelog"))


def test_retention_is_that_of_the_start_of_a_query(cluster: LocalCluster, spark: SparkSession, tmp_path: Path) -> None:
    """A notebook starts a query, and sets something else for its next one at once."""
    long = Run(spark, QUERIES["aggregation"], tmp_path / "long")
    short = Run(spark, QUERIES["distinct"], tmp_path / "short")
    spark.conf.set(RETAINED, "50")
    running = long.start()
    spark.conf.set(RETAINED, "2")
    other = short.start()
    long.advance(running, 9)
    short.advance(other, 9)
    wait_for(lambda: first_versions(cluster, short) == 0, "the state of the first batch is deleted")
    found = job(cluster, long.query.name)
    assert found is not None
    assert found.batch_id >= 8
    assert first_versions(cluster, long) > 0


def test_batches_are_known_when_spark_keeps_no_progress(
    cluster: LocalCluster, spark: SparkSession, tmp_path: Path
) -> None:
    """With this setting Spark drops a progress as soon as it has it."""
    spark.conf.set(PROGRESS_KEPT, "1")
    spark.conf.set(RETAINED, "2")
    run = Run(spark, QUERIES["aggregation"], tmp_path)
    running = run.start()
    run.advance(running, 9)
    assert running.lastProgress is None
    hand_over_one(cluster, run.query.name, 2)
    wait_for(lambda: first_versions(cluster, run) == 0, "the state of the first batch is deleted")


def test_a_plan_that_fails_is_no_trouble_of_rhinos(cluster: LocalCluster, spark: SparkSession, tmp_path: Path) -> None:
    log = cluster.log_dir / "spark-driver.log"
    seen = len(log.read_text())
    run = Run(spark, QUERIES["aggregation"], tmp_path)
    running = run.start()
    run.advance(running, 2)
    running.stop()
    other = events_of(source(spark)).groupBy(F.col("k").cast("string")).count()
    writer = other.writeStream.outputMode("update").option("checkpointLocation", run.location)
    changed = writer.foreachBatch(lambda rows, _: None).start()
    wait_for(lambda: not changed.isActive, "the query with another schema of its state ends")
    assert changed.exception() is not None
    told = log.read_text()[seen:]
    assert "Rhino could not follow" not in told
    assert "Rhino cannot follow" not in told


@pytest.mark.parametrize(("integration", "locate"), [("provider", str), ("checkpoint", rhino_checkpoint)])
def test_a_deleted_checkpoint_stays_deleted(
    integration: str, locate: Callable[[Path], str], spark: SparkSession, tmp_path: Path
) -> None:
    """Rhino may look at a run for the first time when it has stopped. Its user may delete the folder at that moment."""
    spark.conf.set(PROVIDER_KEY, PROVIDER_CLASSES[integration])
    run = Run(spark, QUERIES["aggregation"], tmp_path, locate)
    running = run.start()
    run.advance(running, 2)
    running.stop()
    look = first_look(spark, running)
    assert look.newestCommit().isDefined()
    assert look.hadState()
    look = first_look(spark, running)
    shutil.rmtree(run.checkpoint)
    assert look.committedIds(0).isEmpty()
    assert look.newestCommit().isEmpty()
    assert look.newestOffsets().isEmpty()
    assert not look.hadState()
    assert not run.checkpoint.exists()


def first_look(spark: SparkSession, running: StreamingQuery) -> Any:
    """The driver's own view of a run, which has read nothing yet."""
    assert spark._jvm is not None
    return spark._jvm.rhino.spark.driver.StreamRun(running._jsq.streamingQuery())
