"""Shadow runs and promotion: differences are found where they are, the live query stays as it is, nothing is twice."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import LongType

from query_evolution import CompareRules, FileSink, Recomputed, branch, promote, shadow
from query_evolution.shadows.comparing import compare
from query_evolution.shadows.following import Follower
from rhino import rhino_checkpoint
from rhino.testing import LocalCluster
from rhino_core.errors import ConflictError, PreconditionError
from spark_connector.conf import SPARK_PROVIDER, STREAMING
from spark_connector.query_checkpoint import QueryCheckpoint
from tests.spark.conftest import SharedSession, wait_for
from tests.spark.modified import SCORED, scored
from tests.spark.queries import QUERIES, ROWS_PER_BATCH, consumed, source
from tests.spark.run import Run, assert_same_rows
from tests.spark.support.shadow import written

pytestmark = [pytest.mark.spark, pytest.mark.nightly, pytest.mark.timeout(420)]
SETTINGS = {"spark.sql.shuffle.partitions": "2"}
KEY = 7  # the new code makes other values of it
BY_KEY = CompareRules(key=("k",))


@pytest.fixture
def spark(shared: SharedSession) -> Iterator[SparkSession]:
    with shared.with_settings(SETTINGS) as session:
        yield session


def changed_from(batch: int) -> Callable[[SparkSession], DataFrame]:
    """The query `scored` with a function that is wrong for one key, from a batch on."""
    first = batch * ROWS_PER_BATCH

    def stream(spark: SparkSession) -> DataFrame:
        def score(value: int) -> int:
            return value + (1000 if value >= first and value % 89 == KEY else 1)

        rows = source(spark).select((F.col("value") % 89).alias("k"), F.udf(score, LongType())("value").alias("y"))
        return rows.groupBy("k").agg(F.count(F.lit(1)).alias("n"), F.sum("y").alias("s"))

    return stream


def failing(spark: SparkSession) -> DataFrame:
    def score(value: int) -> int:
        raise ValueError("no score")

    rows = source(spark).select((F.col("value") % 89).alias("k"), F.udf(score, LongType())("value").alias("y"))
    return rows.groupBy("k").agg(F.count(F.lit(1)).alias("n"), F.sum("y").alias("s"))


def stop(run: Run, running: StreamingQuery) -> int:
    """Returns the newest committed batch."""
    running.stop()
    return run.logged() - 1


def check_all_output(run: Run, switched: int, first_wrong: int) -> None:
    """Each batch has exactly the rows of its keys. From batch `switched` on, the new code writes."""
    last = run.logged()
    got = run.spark.read.parquet(*[f"{run.output}/{batch}" for batch in range(last)])
    value = F.col("value")
    rows = consumed(run.spark, last).select((value % 89).alias("k"), F.floor(value / ROWS_PER_BATCH).alias("b"), value)
    wrong = (value >= first_wrong * ROWS_PER_BATCH) & (F.col("k") == KEY)
    upto = run.spark.range(last).withColumnRenamed("id", "batch_id")
    y = value + F.when(wrong & (F.col("batch_id") >= switched), 1000).otherwise(1)
    so_far = rows.join(upto, F.col("b") <= F.col("batch_id")).groupBy("batch_id", "k")
    expected = so_far.agg(F.count(F.lit(1)).alias("n"), F.sum(y).alias("s"))
    assert_same_rows(got, expected.select(*got.columns))


def test_a_change_is_found_and_takes_the_place_of_the_live_query(
    cluster: LocalCluster, spark: SparkSession, tmp_path: Path
) -> None:
    run = Run(spark, SCORED, tmp_path / "live")
    running = run.start()
    run.advance(running, 2)
    same, other = tmp_path / "same", tmp_path / "other"
    first = branch(cluster.manager, run.checkpoint, same).batch + 1
    begun = branch(cluster.manager, run.checkpoint, other).batch + 1
    run.advance(running, 2)
    with pytest.raises(ConflictError, match="its driver runs it"):
        promote(cluster.manager, run.checkpoint, other, "branch")
    last = stop(run, running)
    before = {path: path.read_bytes() for path in run.checkpoint.rglob("*") if path.is_file()}

    # ---- equal code agrees, and code that fails is named. The batch runs again with other code
    report = shadow(scored(spark), run.checkpoint, same, written(run), output_mode="update", batches=1)
    found = [(one.batch, one.live_rows, one.shadow_rows, one.missing, one.surplus) for one in report.batches]
    assert found == [(first, 89, 89, 0, 0)]
    assert report.agrees
    assert all(one.live_s > 0 and one.shadow_s > 0 for one in report.batches)
    report = shadow(failing(spark), run.checkpoint, same, written(run), output_mode="update")
    assert report.failure is not None
    assert (report.failure.batch, "no score" in report.failure.error) == (first + 1, True)
    report = shadow(scored(spark), run.checkpoint, same, written(run), output_mode="update", batches=1)
    assert (len(report.batches), report.agrees) == (2, True)

    # ---- changed code is found in the right batches, with both rows of the key
    wrong = begun + 1
    stream = changed_from(wrong)
    report = shadow(stream(spark), run.checkpoint, other, written(run), output_mode="update", rules=BY_KEY, idle_s=0.5)
    assert [one.batch for one in report.batches] == [*range(begun, last + 1)]
    assert [(one.batch, one.missing, one.surplus) for one in report.different] == [
        (batch, 1, 1) for batch in range(wrong, last + 1)
    ]
    example = report.examples[0]
    live_row, shadow_row = (json.loads(row or "{}") for row in (example.live, example.shadow))
    added = 999 * sum(value % 89 == KEY for value in range(wrong * ROWS_PER_BATCH, (wrong + 1) * ROWS_PER_BATCH))
    assert live_row["k"] == shadow_row["k"] == KEY
    assert shadow_row["s"] - live_row["s"] == added

    # ---- the new code goes on: with the state that it has computed, or with that of the live query
    fresh = tmp_path / "fresh"
    with_state = promote(cluster.manager, run.checkpoint, other, "branch")
    with_live = promote(cluster.manager, run.checkpoint, other, "live", target=fresh)
    assert (with_state.batch, with_state.different, with_live.batch) == (last, len(report.different), last)
    assert {path: path.read_bytes() for path in run.checkpoint.rglob("*") if path.is_file()} == before
    outputs = {other: run.output, fresh: tmp_path / "output"}
    shutil.copytree(run.output, outputs[fresh])
    for checkpoint, first_wrong in ((other, wrong), (fresh, last + 1)):
        promoted = Run(spark, replace(SCORED, name="promoted", stream=stream), tmp_path)
        promoted.checkpoint, promoted.location, promoted.output = checkpoint, str(checkpoint), outputs[checkpoint]
        running = promoted.start()
        promoted.advance(running, 2)
        running.stop()
        check_all_output(promoted, last + 1, first_wrong)
    with pytest.raises(ConflictError, match="rhino promote"):
        shadow(stream(spark), run.checkpoint, other, written(run), output_mode="update")


def test_watermarks_are_followed_and_the_live_output_is_read_or_computed_again(
    cluster: LocalCluster, shared: SharedSession, tmp_path: Path
) -> None:
    """On `rhino://`, with Spark's file sink, in append mode."""
    query, output = QUERIES["distinct"], tmp_path / "output"
    settings = {
        f"{STREAMING}.stateStore.providerClass": SPARK_PROVIDER,
        f"{STREAMING}.fileSink.log.compactInterval": "3",
    }
    with shared.with_settings(SETTINGS | settings) as spark:
        run = Run(spark, query, tmp_path / "live", rhino_checkpoint)
        writer = query.stream(spark).writeStream.format("parquet").option("path", str(output))
        running = writer.option("checkpointLocation", run.location).trigger(processingTime="250 milliseconds").start()
        run.advance(running, 4)
        folders = [tmp_path / name for name in ("read", "computed", "former")]
        begun = max(branch(cluster.manager, run.checkpoint, folder, batch=2).batch for folder in folders) + 1
        wait_for(lambda: run.logged() >= begun + 3, "the live query goes on")
        read, computed, former = folders
        report = shadow(query.stream(spark), run.checkpoint, read, FileSink(output), batches=3)
        assert [one.batch for one in report.batches] == [*range(begun, begun + 3)]
        assert report.agrees
        assert sum(one.live_rows for one in report.batches) > 0
        odd = query.stream(spark).withColumn("n", F.expr("if(k % 2 = 0, n, n + 1)"))
        again = Recomputed(query.stream(spark), former)
        report = shadow(odd, run.checkpoint, computed, again, batches=2)
        assert [one.batch for one in report.different], "a window closes in every second batch"
        assert all(one.live_rows > one.missing == one.surplus > 0 for one in report.different)

        # ---- as after a crash between both commits: the former code is one batch ahead
        newest = report.batches[-1]
        Follower(QueryCheckpoint(run.checkpoint), QueryCheckpoint(computed)).take_back(newest.batch)
        repeated = shadow(odd, run.checkpoint, computed, Recomputed(query.stream(spark), former), batches=1)
        assert [replace(one, live_s=0, shadow_s=0) for one in repeated.batches] == [
            replace(one, live_s=0, shadow_s=0) for one in report.batches
        ]
        running.stop()


def rows(spark: SparkSession, values: str) -> DataFrame:
    return spark.sql(f"select k, double(x) as x, t from values {values} as given(k, x, t)")


def test_rows_count_as_often_as_they_are_there_and_tolerance_is_relative(spark: SparkSession) -> None:
    live = rows(spark, "(1, '1', 'a'), (1, '1', 'a'), (2, 'NaN', null), (3, '1e9', 'c'), (4, '0', 'd')")
    other = rows(spark, "(1, '1', 'a'), (2, 'NaN', null), (3, '1000000001', 'c'), (4, '-0', 'd')")
    found = compare(live, other, CompareRules())
    assert (found.live_rows, found.shadow_rows, found.missing, found.surplus) == (5, 4, 2, 1)
    assert Counter(left is None for left, _ in found.examples) == {False: 2, True: 1}
    found = compare(live, other, CompareRules(tolerance=1e-8, key=("k",)))
    assert (found.live_rows, found.shadow_rows, found.missing, found.surplus) == (5, 4, 1, 0)
    assert found.examples == (('{"k":1,"x":1.0,"t":"a"}', None),)
    found = compare(live, other.select("t", "x", "k"), CompareRules(columns=("k", "t")))
    assert (found.missing, found.surplus) == (1, 0)
    assert compare(None, other, CompareRules()).surplus == 4
    with pytest.raises(PreconditionError, match="only the live output has the column t"):
        compare(live, other.drop("t"), CompareRules())
    with pytest.raises(PreconditionError, match="k is int in the live output and bigint in the shadow's"):
        compare(live, other.withColumn("k", F.col("k").cast("long")), CompareRules())
    mapped = live.withColumn("m", F.array(F.create_map("k", "x")))
    with pytest.raises(PreconditionError, match="does not compare array<map<"):
        compare(mapped, mapped, CompareRules())
