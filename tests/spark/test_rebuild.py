"""The state of operators that are born is what the new code would have computed from the former rows."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from query_evolution import Modifications, rebuild, restructure
from rhino import HandoverClient, rhino_checkpoint
from rhino.testing import LocalCluster
from rhino_core.errors import PreconditionError
from spark_connector.conf import SPARK_PROVIDER
from spark_connector.query_checkpoint import PROVIDER_KEY
from tests.spark.conftest import SharedSession, wait_for
from tests.spark.queries import ROWS_PER_BATCH, StatefulQuery, consumed, events_of, source
from tests.spark.run import Run, assert_same_rows, job
from tests.spark.support.named_schemas import totals, totals_of, unnamed
from tests.spark.support.restructure import counted, query, read

pytestmark = [pytest.mark.spark, pytest.mark.nightly, pytest.mark.timeout(420)]
SETTINGS = {
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.streaming.stateStore.minDeltasForSnapshot": "2",
}


@pytest.fixture
def spark(shared: SharedSession) -> Iterator[SparkSession]:
    with shared.with_settings(SETTINGS) as session:
        yield session


def stop(cluster: LocalCluster, run: Run) -> int:
    """Returns how many batches have run."""
    for running in run.spark.streams.active:
        running.stop()
    wait_for(lambda: job(cluster, run.query.name) is None, "the driver has reported the end")
    return run.logged()


def test_a_key_that_came_before_is_refused_by_an_operator_that_is_born(
    cluster: LocalCluster, spark: SparkSession, tmp_path: Path
) -> None:
    """The former query goes on while its batches are replayed from batch 0. Its counts are kept."""
    former = query(lambda rows: rows.groupBy("k").count())
    new = query(lambda rows: rows.dropDuplicates(["e"]).groupBy("k").count())
    run, following = Run(spark, former, tmp_path / "former"), Run(spark, new, tmp_path / "new")
    rebuilt = tmp_path / "rebuilt"
    running = run.start()
    run.advance(running, 2)
    begun = rebuild(cluster.manager, new.stream(spark), run.checkpoint, rebuilt, output_mode="update", batches=2)
    assert (begun.first, begun.batch, begun.behind > 0) == (0, 1, begun.newest > 1)
    run.advance(running, 1)
    first = stop(cluster, run)
    with pytest.raises(PreconditionError, match=rf"stands after batch 1 .*after batch {first - 1} .*rebuild\(\) again"):
        restructure(cluster.manager, run.checkpoint, following.checkpoint, rebuilt)
    done = rebuild(cluster.manager, new.stream(spark), run.checkpoint, rebuilt, output_mode="update")
    assert (done.job, done.batch, done.behind) == (begun.job, first - 1, 0)
    made = restructure(cluster.manager, run.checkpoint, following.checkpoint, rebuilt)
    assert [(one.fate, one.old, one.new) for one in made.operators] == [("same", 0, 0), ("rebuilt", None, 1)]
    assert (made.stores, made.rebuilt_stores, made.empty_stores, made.rebuilt_from) == (2, 2, 0, "batch 0")
    with HandoverClient(cluster.manager) as client:
        client.forget_job(done.job, now=True)

    following.output = run.output
    following.advance(following.start(), 2)
    second = stop(cluster, following)
    seen = read(spark, 0, first).select("e").distinct()
    fresh = read(spark, first, second).select("e", "k").distinct()
    passed = fresh.join(seen, "e", "left_anti")
    assert 0 < passed.count() < fresh.count()
    assert_same_rows(following.result(second), counted(read(spark, 0, first), passed))


def test_former_batches_are_run_with_the_modifications_that_they_had(
    cluster: LocalCluster, spark: SparkSession, tmp_path: Path
) -> None:
    """Rows that a filter of the former query has dropped are new to an operator that is born."""

    def marked(rows: DataFrame) -> DataFrame:
        return rows.observe("read", F.count(F.lit(1)).alias("rows"))

    run = Run(spark, query(lambda rows: marked(rows).groupBy("k").count()), tmp_path / "former")
    new = query(lambda rows: marked(rows).dropDuplicates(["e"]).groupBy("k").count())
    following = Run(spark, new, tmp_path / "new")
    running = run.start()
    run.advance(running, 1)
    changes = Modifications(run.checkpoint)
    begun = changes.wait(changes.set_filter("read", "e < 0").record.number).first_batch
    run.advance(running, 1)
    ended = changes.wait(changes.remove("filter", "read").record.number).first_batch
    run.advance(running, 1)
    first = stop(cluster, run)
    assert begun is not None
    assert ended is not None
    rebuilt = tmp_path / "rebuilt"
    done = rebuild(cluster.manager, new.stream(spark), run.checkpoint, rebuilt, output_mode="update")
    assert done.batch == first - 1
    restructure(cluster.manager, run.checkpoint, following.checkpoint, rebuilt)
    following.output = run.output
    following.advance(following.start(), 2)
    second = stop(cluster, following)
    passed_point = read(spark, 0, begun).unionAll(read(spark, ended, first))
    fresh = read(spark, first, second).select("e", "k").distinct()
    passed = fresh.join(passed_point.select("e").distinct(), "e", "left_anti")
    assert passed.join(read(spark, begun, ended), "e", "left_semi").count() > 0
    assert_same_rows(following.result(second), counted(passed_point, passed))


def small_windows(rows: DataFrame) -> DataFrame:
    in_time = events_of(rows).withWatermark("ts", "3 seconds")
    return in_time.groupBy(F.window("ts", "4 seconds"), "k").agg(F.count(F.lit(1)).alias("n"))


def large_windows(rows: DataFrame) -> DataFrame:
    """Adds up what the small windows have emitted, in windows of two batches."""
    large = small_windows(rows).groupBy(F.window(F.window_time("window"), "20 seconds"), "k")
    return large.agg(F.sum("n").alias("n")).select(F.col("window.start").cast("long").alias("w"), "k", "n")


def test_an_operator_above_another_one_knows_what_that_one_emitted_before(
    cluster: LocalCluster, shared: SharedSession, tmp_path: Path
) -> None:
    """On rhino://. All batches before one in the middle are replayed as one, and small windows closed in them."""
    with shared.with_settings(SETTINGS | {PROVIDER_KEY: SPARK_PROVIDER}) as spark:

        def windows(spark: SparkSession) -> DataFrame:
            return small_windows(source(spark)).select(F.col("window.start").cast("long").alias("w"), "k", "n")

        def batch(spark: SparkSession, batches: int) -> DataFrame:
            return large_windows(consumed(spark, batches))

        former = StatefulQuery("windows", "append", windows, batch, None)
        new = StatefulQuery("windows", "append", lambda spark: large_windows(source(spark)), batch, None)
        run = Run(spark, former, tmp_path / "former", rhino_checkpoint)
        following = Run(spark, new, tmp_path / "new", rhino_checkpoint)
        run.advance(run.start(), 5)
        first = stop(cluster, run)
        rebuilt = tmp_path / "rebuilt"
        middle = first - 3
        begun = rebuild(cluster.manager, new.stream(spark), run.checkpoint, rebuilt, first=middle, batches=1)
        assert (begun.first, begun.batch) == (middle, middle)
        with pytest.raises(PreconditionError, match=f"begins with batch {middle}"):
            restructure(cluster.manager, run.checkpoint, following.checkpoint, rebuilt, batch=middle)
        done = rebuild(cluster.manager, new.stream(spark), run.checkpoint, rebuilt)
        assert (done.batch, done.behind) == (first - 1, 0)
        made = restructure(cluster.manager, run.checkpoint, following.checkpoint, rebuilt)
        assert [(one.fate, one.old, one.new) for one in made.operators] == [("rebuilt", None, 0), ("moved", 0, 1)]
        assert made.rebuilt_from == "the rows that the sources still have"
        following.advance(following.start(), 4)
        last = stop(cluster, following)

        new_rows = spark.read.parquet(*[f"{following.output}/{number}" for number in range(first, last)])
        emitted = sorted(row.w for row in new_rows.select("w").distinct().collect())
        expected = batch(spark, last).where(F.col("w").isin(emitted))
        assert_same_rows(new_rows.drop("batch_id"), expected)
        switched = 1_600_000_000 + 10 * first  # event time of the first row of the new code
        assert emitted[0] < switched - 4, "rows of small windows that closed before are in it"
        assert emitted == [*range(emitted[0], emitted[-1] + 1, 20)], "none is left out"
        assert len(emitted) >= 2


def test_files_are_read_again_for_an_operator_with_schema_files(
    cluster: LocalCluster, shared: SharedSession, tmp_path: Path
) -> None:
    """transformWithState on rhino://. The log of the source names the files of the batches that are replayed as one."""
    put(tmp_path / "in", 0, 5)
    with shared.with_settings(SETTINGS | {PROVIDER_KEY: SPARK_PROVIDER}) as spark:

        def unique(spark: SparkSession) -> DataFrame:
            stream = spark.readStream.schema("value bigint").option("maxFilesPerTrigger", 1).json(str(tmp_path / "in"))
            return stream.dropDuplicates(["value"])

        former = StatefulQuery("files", "append", unique, totals_of, None)
        new = StatefulQuery("files", "update", lambda spark: totals(unique(spark)), totals_of, "k")
        run = Run(spark, former, tmp_path / "former", rhino_checkpoint)
        following = Run(spark, new, tmp_path / "new", rhino_checkpoint)
        run.advance(run.start(), 5)
        first, rebuilt = stop(cluster, run), tmp_path / "rebuilt"
        assert first == 5
        done = rebuild(cluster.manager, new.stream(spark), run.checkpoint, rebuilt, output_mode="update", first=2)
        assert (done.first, done.batch) == (2, 4)
        made = restructure(cluster.manager, run.checkpoint, following.checkpoint, rebuilt)
        assert [(one.fate, one.old, one.new) for one in made.operators] == [("rebuilt", None, 0), ("moved", 0, 1)]
        shutil.rmtree(rebuilt)
        assert len(unnamed(following.checkpoint, rebuilt)) == 1
        put(tmp_path / "in", 5, 7)
        following.advance(following.start(), 2)
        assert stop(cluster, following) == 7
        rows = spark.read.parquet(*[f"{following.output}/{number}" for number in (5, 6)])
        newest = rows.groupBy("k").agg(F.max("batch_id").alias("batch_id"))
        assert_same_rows(
            rows.join(newest, ["k", "batch_id"]).drop("batch_id"),
            totals_of(spark, 7).join(newest.select("k"), "k"),
        )


def put(folder: Path, first: int, end: int) -> None:
    """A file of rows for each batch."""
    folder.mkdir(exist_ok=True)
    for number in range(first, end):
        values = range(number * ROWS_PER_BATCH, (number + 1) * ROWS_PER_BATCH)
        hidden = folder / f".{number}.json"
        hidden.write_text("\n".join(f'{{"value": {value}}}' for value in values))
        hidden.rename(folder / f"{number}.json")
