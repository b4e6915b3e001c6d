"""What a change at a point sees: columns of a later version of the application, and the time of its batch."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from query_evolution import Modifications
from query_evolution.modify import modifications
from rhino_core.errors import PreconditionError
from tests.spark.conftest import SharedSession, wait_for
from tests.spark.modified import POINT
from tests.spark.queries import ROWS_PER_BATCH, StatefulQuery, consumed, source
from tests.spark.run import Run, assert_same_rows

pytestmark = [pytest.mark.spark, pytest.mark.nightly, pytest.mark.timeout(420)]
SETTINGS = {"spark.sql.shuffle.partitions": "2"}
CHANGED = "cast(k as bigint) * 7 + 5"


@pytest.fixture
def spark(shared: SharedSession) -> Iterator[SparkSession]:
    with shared.with_settings(SETTINGS) as session:
        yield session


def version(y: Column, term: Column) -> StatefulQuery:
    """A version of the application: column `y` of its point, and what it sums of it as a BIGINT."""

    def stream(spark: SparkSession) -> DataFrame:
        rows = source(spark).select((F.col("value") % 89).alias("k"), y.alias("y"))
        marked = rows.observe(POINT, F.count(F.lit(1)).alias("rows"))
        return marked.groupBy("k").agg(F.count(F.lit(1)).alias("n"), F.sum(term).alias("s"))

    def batch(spark: SparkSession, batches: int) -> DataFrame:
        raise AssertionError("the versions of a test have one batch computation")

    return StatefulQuery("refitted", "update", stream, batch, key="k")


def test_a_column_of_another_type_after_a_restart_is_left_alone(spark: SparkSession, tmp_path: Path) -> None:
    """The value of a BIGINT in place of an INT or of a text would be read as something else."""
    run = Run(spark, version(F.col("value"), F.col("y")), tmp_path)
    running = run.start()
    run.advance(running, 2)
    changes = Modifications(run.checkpoint)
    changed = changes.wait(changes.set_columns(POINT, {"y": CHANGED}).record.number)
    assert (changed.state, changed.reason) == ("in_force", "")
    run.advance(running, 2)
    running.stop()
    restarts = [run.logged()]
    text = F.concat(F.lit("text "), F.col("value").cast("string"))
    for y, term in ((F.col("value").cast("int"), F.col("y")), (text, F.length("y"))):
        run.query = version(y, term)
        running = run.start()
        run.advance(running, 2)
        running.stop()
        restarts.append(run.logged())
    batches, batch = run.logged(), F.floor(F.col("value") / ROWS_PER_BATCH)
    key = F.col("value") % 89
    y = (
        F.when(batch < changed.first_batch, F.col("value"))
        .when(batch < restarts[0], key * 7 + 5)
        .when(batch < restarts[1], F.col("value"))
        .otherwise(F.length(text))
    )
    rows = consumed(spark, batches).select(key.alias("k"), y.alias("y"))
    expected = rows.groupBy("k").agg(F.count(F.lit(1)).alias("n"), F.sum("y").alias("s"))
    assert_same_rows(run.result(batches), expected)


def test_sql_of_a_point_has_the_time_of_its_batch(spark: SparkSession, tmp_path: Path) -> None:
    """As SQL of the application, whose batches have the time of the offset log also when they are tried again."""
    names = ("now", "local", "today", "unix")

    def stream(spark: SparkSession) -> DataFrame:
        rows = source(spark).select(
            (F.col("value") % 89).alias("k"), *(F.lit(None).cast("long").alias(n) for n in names)
        )
        marked = rows.observe(POINT, F.count(F.lit(1)).alias("rows"))
        return marked.groupBy("k").agg(*(F.max(name).alias(name) for name in names))

    run = Run(spark, StatefulQuery("timed", "update", stream, lambda spark, batches: consumed(spark, 0), "k"), tmp_path)
    running = run.start()
    run.advance(running, 2)
    changes = Modifications(run.checkpoint)
    columns = {
        "now": "unix_millis(now())",
        "local": "unix_millis(cast(localtimestamp() as timestamp))",
        "today": "cast(unix_date(current_date()) as bigint)",
        "unix": "unix_timestamp()",
    }
    changed = changes.wait(changes.set_columns(POINT, columns).record.number)
    assert (changed.state, changed.reason) == ("in_force", "")
    filtered = changes.set_filter(POINT, "current_timestamp() > timestamp'2000-01-01'").record.number
    assert changes.wait(filtered).state == "in_force"
    run.advance(running, 2)
    running.stop()
    assert changed.first_batch is not None
    for batch in range(changed.first_batch, run.logged()):
        logged = json.loads((run.checkpoint / "offsets" / str(batch)).read_text().splitlines()[1])["batchTimestampMs"]
        rows = spark.read.parquet(f"{run.output}/{batch}").select(*names).distinct().collect()
        day = spark.sql(f"select unix_date(to_date(timestamp_millis({logged})))").first()
        assert day is not None
        assert rows == [(logged, logged, day[0], logged // 1000)]


def test_a_change_of_a_running_query_without_new_data_is_not_withdrawn(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver has the right to run, so nobody else decides about the batches that it plans."""
    run = Run(spark, version(F.col("value"), F.col("y")), tmp_path)
    running = run.start()
    run.advance(running, 2)
    changes = Modifications(run.checkpoint)
    changed = changes.wait(changes.set_filter(POINT, "k < 80").record.number)
    assert changed.state == "in_force"
    monkeypatch.setattr(modifications, "IDLE_S", 0.0)  # as if no batch had come for so long
    with pytest.raises(PreconditionError, match=r"process \d+ of user .* runs the query"):
        changes.withdraw(changed.record.number)
    assert changes.get(changed.record.number) == changed
    running.stop()

    def withdrawn() -> bool:
        try:
            return changes.withdraw(changed.record.number).state == "returned"
        except PreconditionError:
            return False

    wait_for(withdrawn, "the driver has given the right back", timeout_s=10)
    running = run.start()
    run.advance(running, 2)
    running.stop()
    after = changes.get(changed.record.number).last_batch
    assert after is not None
    batch = F.floor(F.col("value") / ROWS_PER_BATCH)
    within = batch.between(changed.first_batch, after)
    rows = consumed(spark, run.logged()).select((F.col("value") % 89).alias("k"), "value", within.alias("within"))
    rows = rows.where("not within or k < 80")
    assert_same_rows(
        run.result(run.logged()), rows.groupBy("k").agg(F.count(F.lit(1)).alias("n"), F.sum("value").alias("s"))
    )
