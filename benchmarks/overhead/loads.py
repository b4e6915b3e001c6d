"""The queries, endless and replayable: NBQ8 (growing state), NBQ5 (windows come and go), rows per key."""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from examples.demo import query
from workloads.nexmark import events
from workloads.nexmark.queries.windows import nbq5
from workloads.nexmark.query import Streams
from workloads.nexmark.settings import BASE_MS

KEYS = 1_000_000


def ids(spark: SparkSession, rows_per_batch: int) -> DataFrame:
    """Column `n`: 0, 1, 2 ..., so many in every batch."""
    source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", rows_per_batch)
    rows = source.option("numPartitions", 2).option("startTimestamp", BASE_MS).load()
    return rows.selectExpr("value as n")


def _nbq8(spark: SparkSession, rows_per_batch: int) -> DataFrame:
    """A quarter persons, the rest auctions."""
    persons = rows_per_batch // 4
    return query.nbq8(*query.made(ids(spark, persons), ids(spark, 3 * persons)))


def _nbq5(spark: SparkSession, rows_per_batch: int) -> DataFrame:
    """46 of 50 events are bids."""
    bids, generator = nbq5(), nbq5().generator

    def made() -> DataFrame:
        return events.bids(ids(spark, rows_per_batch), generator)

    return bids.stream(Streams(made, made, made, generator))


def _count(spark: SparkSession, rows_per_batch: int) -> DataFrame:
    """Rows per key, with keys spread evenly over `KEYS`."""
    return ids(spark, rows_per_batch).groupBy(F.pmod(F.hash("n"), F.lit(KEYS)).alias("k")).count()


LOADS: dict[str, tuple[Callable[[SparkSession, int], DataFrame], str]] = {
    "nbq8": (_nbq8, "append"),
    "nbq5": (_nbq5, "append"),
    "count": (_count, "update"),
}
