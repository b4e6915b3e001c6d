"""Tables of the tests of joins at a point, and what a batch computation makes of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from query_evolution.modify.ledger import View
from tests.spark.modified import _counted
from tests.spark.queries import ROWS_PER_BATCH, consumed


def bonuses(spark: SparkSession, factor: int) -> DataFrame:
    """For two of three keys."""
    return spark.range(89).where("id % 3 > 0").select("id", (F.col("id") * factor).alias("bonus"))


def write(rows: DataFrame, folder: Path) -> str:
    """As Parquet. Returns the folder."""
    rows.coalesce(2).write.mode("overwrite").parquet(str(folder))
    return str(folder)


def joined_batch(
    spark: SparkSession, batches: int, views: Sequence[View], tables: Mapping[int, DataFrame]
) -> DataFrame:
    """The query `scored` with filters, joins and columns. `tables`: by number of a modification, what it joined."""
    rows = joined_rows(spark, batches, views, tables)
    return rows.groupBy("k").agg(F.count(F.lit(1)).alias("n"), F.sum("y").alias("s"))


def joined_rows(spark: SparkSession, batches: int, views: Sequence[View], tables: Mapping[int, DataFrame]) -> DataFrame:
    """The rows as they come out of the point, with the number of their batch."""
    batch = F.floor(F.col("value") / ROWS_PER_BATCH)
    rows = consumed(spark, batches).select((F.col("value") % 89).alias("k"), (F.col("value") + 1).alias("y"), "value")
    rows = rows.withColumn("batch", batch)
    for kind in ("filter", "join", "columns"):  # their order at a point
        for view in views:
            if view.record.change.kind == kind and not view.record.change.removes and _counted(view):
                last = batches if view.last_batch is None else view.last_batch
                within = f"batch between {view.first_batch} and {last}"
                rows = changed(rows, view, within, tables.get(view.record.number))
    return rows


def changed(rows: DataFrame, view: View, within: str, table: DataFrame | None) -> DataFrame:
    """What one modification makes of the rows of its batches."""
    change = view.record.change
    if table is None:
        if change.condition:
            return rows.where(f"not ({within}) or ({change.condition})")
        return rows.withColumn("y", F.expr(f"if({within}, {change.columns['y']}, y)"))
    assert change.join is not None
    found = rows.join(table.withColumn("hit", F.lit(1)), rows.k == table.id, "left")
    passes = {"inner": "hit = 1", "left_semi": "hit = 1", "left_anti": "hit is null", "left": "true"}[change.join.how]
    found = found.where(f"not ({within}) or ({passes})")
    if change.columns:
        found = found.withColumn("y", F.expr(f"if({within}, {change.columns['y'].replace('table.', '')}, y)"))
    return found.select(*rows.columns)
