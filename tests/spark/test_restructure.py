"""Stateful operators are inserted, moved and removed, and the results need the state that was kept."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from query_evolution import restructure, sketch
from rhino import rhino_checkpoint
from rhino.testing import LocalCluster
from rhino_core.errors import ConflictError, PreconditionError
from spark_connector.conf import PROVIDER_CLASSES, SPARK_PROVIDER
from spark_connector.query_checkpoint import PROVIDER_KEY
from tests.spark.conftest import SharedSession, wait_for
from tests.spark.queries import source
from tests.spark.run import Run, assert_same_rows, job
from tests.spark.support.restructure import (
    COUNTS,
    INSERTED,
    NAME,
    REMOVED,
    SETTINGS,
    Story,
    counted,
    query,
    read,
    rows_of,
)
from tests.spark.support.takeover import Tool

pytestmark = [pytest.mark.spark, pytest.mark.nightly, pytest.mark.timeout(420)]


def firsts(spark: SparkSession, first: int, end: int) -> DataFrame:
    """Rows of these batches whose `d` no batch before had, each once."""
    return read(spark, first, end).distinct().join(read(spark, 0, first).select("d").distinct(), "d", "left_anti")


@pytest.fixture
def spark(shared: SharedSession) -> Iterator[SparkSession]:
    with shared.with_settings(SETTINGS) as session:
        yield session


@pytest.mark.parametrize("way", ["provider", "checkpoint"])
def test_operators_are_inserted_moved_and_removed(
    cluster: LocalCluster, shared: SharedSession, tmp_path: Path, way: str
) -> None:
    """With Rhino's provider, and with Spark's own one on rhino://."""
    settings = SETTINGS | ({PROVIDER_KEY: SPARK_PROVIDER} if way == "checkpoint" else {})
    locate = rhino_checkpoint if way == "checkpoint" else str
    with shared.with_settings(settings) as spark:
        story = Story(cluster, spark, tmp_path, locate)
        first = story.go(3)
        former = story.run
        made = story.turn(INSERTED, "second")
        assert [(one.fate, one.old, one.new) for one in made.operators] == [
            ("same", 0, 0),
            ("born", None, 1),
            ("moved", 1, 2),
        ]
        assert (made.stores, made.empty_stores, made.linked_bytes > 0) == (4, 2, True)
        second = story.go(4)
        both = [firsts(spark, 0, first), firsts(spark, first, second).select("e", "k").distinct()]
        assert firsts(spark, first, second).count() < read(spark, first, second).select("d").distinct().count()
        assert_same_rows(story.run.result(second), counted(*both))

        made = story.turn(REMOVED, "third")
        assert [(one.fate, one.old, one.new) for one in made.operators] == [
            ("moved", 2, 0),
            ("dropped", 0, None),
            ("dropped", 1, None),
        ]
        story.run.output = tmp_path / "third" / "output"
        third = story.go(3)
        new = spark.read.parquet(*[f"{story.run.output}/{batch}" for batch in range(second, third)])
        assert_same_rows(new.drop("batch_id"), firsts(spark, second, third))

        # ---- the former code goes on where it was stopped, with its own state
        story.run = former
        former.output = tmp_path / "first" / "again"
        _copy_output(tmp_path / "first" / "output", former.output, first)
        again = story.go(3)
        assert_same_rows(former.result(again), counted(firsts(spark, 0, again)))


def _copy_output(source: Path, target: Path, batches: int) -> None:
    for batch in range(batches):
        shutil.copytree(source / str(batch), target / str(batch))


@pytest.fixture
def stock(cluster: LocalCluster) -> Iterator[SparkSession]:
    """A session that may run queries with Spark's own provider, too."""
    session = cluster.session("restructure", SETTINGS | {PROVIDER_KEY: SPARK_PROVIDER})
    yield session
    session.stop()


def test_spark_itself_refuses_the_change_and_takes_the_result(
    cluster: LocalCluster, stock: SparkSession, tmp_path: Path
) -> None:
    """After a release, the state that was kept and the state that was born empty open with Spark's own provider."""
    stock.conf.set(PROVIDER_KEY, PROVIDER_CLASSES["provider"])
    story = Story(cluster, stock, tmp_path, str)
    first = story.go(3)
    changed = Run(stock, INSERTED, tmp_path / "first")
    with pytest.raises(StreamingQueryException, match="STATEFUL_OPERATOR_NOT_MATCH_IN_STATE_METADATA"):
        changed.start().processAllAvailable()
    wait_for(lambda: job(cluster, NAME) is None, "the driver has reported the end")
    made = story.turn(INSERTED, "second")
    Tool(cluster)("release", story.run.checkpoint)
    with_spark = story.run
    stock.conf.set(PROVIDER_KEY, SPARK_PROVIDER)
    running = with_spark.start()
    with_spark.advance(running, 3)
    running.stop()
    second = with_spark.logged()
    both = [firsts(stock, 0, first), firsts(stock, first, second).select("e", "k").distinct()]
    assert_same_rows(with_spark.result(second), counted(*both))
    assert made.batch == first - 1


def test_a_running_query_and_a_sketch_that_fits_nothing_are_refused(
    cluster: LocalCluster, spark: SparkSession, tmp_path: Path
) -> None:
    run = Run(spark, COUNTS, tmp_path / "first")
    running = run.start()
    run.advance(running, 1)
    planned = sketch(INSERTED.stream(spark), run.checkpoint, tmp_path / "sketch", output_mode="update")
    with pytest.raises(ConflictError, match="its driver runs it"):
        restructure(cluster.manager, run.checkpoint, tmp_path / "new", planned)
    running.stop()
    wait_for(lambda: job(cluster, NAME) is None, "the driver has reported the end")
    other = query(lambda rows: rows.dropDuplicates(["d"]).groupBy("k").agg(F.sum("e").alias("s")))
    planned = sketch(other.stream(spark), run.checkpoint, tmp_path / "other", output_mode="update")
    with pytest.raises(PreconditionError, match="is the new operator 0 the former operator 0, changed"):
        restructure(cluster.manager, run.checkpoint, tmp_path / "new", planned)
    with pytest.raises(PreconditionError, match="describes no stateful operator"):
        sketch(rows_of(source(spark)), run.checkpoint, tmp_path / "stateless")
    assert not (tmp_path / "new").exists()
