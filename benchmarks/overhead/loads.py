"""The queries: NBQ8 (state that only grows) and a count per key (state that is updated), endless and replayable."""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from deploy.demo import nexmark, query

ENDLESS = 1_000_000  # batches
KEYS = 1_000_000


def nbq8(spark: SparkSession, rows_per_batch: int) -> DataFrame:
    """A quarter persons, the rest auctions."""
    load = query.Workload(persons=rows_per_batch // 4 * ENDLESS, batches=ENDLESS)
    return query.nbq8(*query.streams(spark, load))


def count(spark: SparkSession, rows_per_batch: int) -> DataFrame:
    """Rows per key, with keys spread evenly over `KEYS`."""
    rows = nexmark.stream(spark, rows_per_batch * ENDLESS, ENDLESS)
    return rows.groupBy(F.pmod(F.hash("value"), F.lit(KEYS)).alias("k")).count()


LOADS: dict[str, tuple[Callable[[SparkSession, int], DataFrame], str]] = {
    "nbq8": (nbq8, "append"),
    "count": (count, "update"),
}
