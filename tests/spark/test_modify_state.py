"""Modifications at a point beside or above operators with state: they do not change what comes into the state."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from query_evolution import Modifications
from query_evolution.modify.ledger import View
from tests.spark.conftest import SharedSession
from tests.spark.joined import bonuses, write
from tests.spark.modified import NUMBERED
from tests.spark.queries import ROWS_PER_BATCH, StatefulQuery, consumed, source
from tests.spark.run import Run, assert_equals_batch, assert_same_rows

pytestmark = [pytest.mark.spark, pytest.mark.nightly, pytest.mark.timeout(300)]
POINT = "sold"
EARLIER = 4 * ROWS_PER_BATCH  # an offer comes so many values before the sale of its item


def offers(rows: DataFrame) -> DataFrame:
    return rows.select((F.col("value") + EARLIER).alias("item"), F.col("value").alias("offer"))


def sales(rows: DataFrame) -> DataFrame:
    return rows.select(F.col("value").alias("sale"), (F.col("value") % 7).alias("price"))


def sold(spark: SparkSession) -> DataFrame:
    marked = sales(source(spark)).observe(POINT, F.count(F.lit(1)).alias("rows"))
    return marked.join(offers(source(spark)), F.expr("sale = item")).select("sale", "price", "offer")


def sold_batch(spark: SparkSession, batches: int, views: Sequence[View]) -> DataFrame:
    rows = sales(consumed(spark, batches)).withColumn("batch", F.floor(F.col("sale") / ROWS_PER_BATCH))
    for view in views:
        if view.record.change.condition:
            within = f"batch between {view.first_batch} and {view.last_batch}"
            rows = rows.where(f"not ({within}) or ({view.record.change.condition})")
    return rows.join(offers(consumed(spark, batches)), F.expr("sale = item")).select("sale", "price", "offer")


SOLD = StatefulQuery("sold", "append", sold, lambda spark, batches: sold_batch(spark, batches, []), key=None)


@pytest.fixture
def spark(shared: SharedSession) -> Iterator[SparkSession]:
    with shared.with_settings({"spark.sql.shuffle.partitions": "2"}) as session:
        yield session


def test_a_filter_on_the_key_of_a_join_leaves_the_other_input_alone(spark: SparkSession, tmp_path: Path) -> None:
    """Offers that come while the filter is in force meet sales that come after its removal."""
    run = Run(spark, SOLD, tmp_path)
    running = run.start()
    run.advance(running, 2)
    changes = Modifications(run.checkpoint)
    assert changes.wait(changes.set_filter(POINT, "sale % 2 = 0").record.number).state == "in_force"
    run.advance(running, 1)
    removed = changes.wait(changes.remove("filter", POINT).record.number)
    assert removed.state == "in_force"
    assert removed.first_batch is not None
    run.advance(running, 6)  # the sales of all offers that came meanwhile
    running.stop()
    batches = run.logged()
    assert_same_rows(run.result(batches), sold_batch(spark, batches, changes.list()))


def test_a_filter_and_a_join_above_an_aggregation_leave_its_state_alone(spark: SparkSession, tmp_path: Path) -> None:
    """Groups whose rows do not come out meanwhile are counted on."""
    run = Run(spark, NUMBERED, tmp_path / "query")
    running = run.start()
    run.advance(running, 1)
    changes, table = Modifications(run.checkpoint), write(bonuses(spark, 1), tmp_path / "table")
    passed = changes.wait(changes.set_filter("counted", "k % 2 = 0").record.number)
    joined = changes.wait(changes.set_join("counted", table, {"k": "id"}, how="left_semi").record.number)
    assert (passed.state, joined.state) == ("in_force", "in_force"), f"{passed.reason}{joined.reason}"
    run.advance(running, 1)
    for kind in ("filter", "join"):
        removed = changes.wait(changes.remove(kind, "counted").record.number)
        assert removed.state == "in_force", removed.reason
    run.advance(running, 1)  # with rows of all groups
    running.stop()
    rows = spark.read.parquet(f"{run.output}/{joined.first_batch}")
    assert {row.k for row in rows.collect()} == {k for k in range(89) if k % 2 == 0 and k % 3 > 0}
    assert_equals_batch(run)
