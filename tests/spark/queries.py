"""The stateful queries of the Spark tests: each as a stream and, from the same rows, as a batch computation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spark_connector.conf import JOIN_FORMAT, state_conf

ROWS_PER_BATCH = 600
START_MS = 1_600_000_000_000
MS_PER_BATCH = 10_000


def source(spark: SparkSession) -> DataFrame:
    """Endless rows (value: bigint from 0, timestamp), ROWS_PER_BATCH a batch; replayable."""
    return (
        spark.readStream.format("rate-micro-batch")
        .option("rowsPerBatch", ROWS_PER_BATCH)
        .option("numPartitions", 3)
        .option("startTimestamp", START_MS)
        .option("advanceMillisPerBatch", MS_PER_BATCH)
        .load()
    )


def consumed(spark: SparkSession, batches: int) -> DataFrame:
    """The rows that `batches` batches have read, as a batch; event time is derived from value in both."""
    return spark.range(batches * ROWS_PER_BATCH).withColumnRenamed("id", "value")


def events_of(rows: DataFrame) -> DataFrame:
    """Key and event time from value alone, so that stream and batch agree."""
    seconds = F.lit(START_MS / 1000) + F.col("value") / F.lit(ROWS_PER_BATCH) * F.lit(MS_PER_BATCH / 1000)
    return rows.select(
        "value",
        (F.hash("value") % 97).alias("k"),
        F.timestamp_seconds(seconds).alias("ts"),
    )


def aggregation(rows: DataFrame) -> DataFrame:
    """Update mode: count, sum and greatest per key."""
    return (
        events_of(rows).groupBy("k").agg(F.count("*").alias("n"), F.sum("value").alias("s"), F.max("value").alias("m"))
    )


def join(left: DataFrame, right: DataFrame) -> DataFrame:
    """Append mode: pairs of equal value parity classes with the same derived key, at most 300 values apart."""
    a = events_of(left).where("value % 2 = 0").select(F.col("k").alias("ka"), F.col("value").alias("a"))
    b = events_of(right).where("value % 2 = 1").select(F.col("k").alias("kb"), F.col("value").alias("b"))
    return a.join(b, F.expr("ka = kb and abs(a - b) <= 300")).select("ka", "a", "b")


@dataclass(frozen=True)
class StatefulQuery:
    """`stream(spark)` and `batch(spark, batches)` must give the same rows."""

    name: str
    output_mode: str
    stream: Callable[[SparkSession], DataFrame]
    batch: Callable[[SparkSession, int], DataFrame]
    key: str | None  # update mode: the newest row per key counts
    state_format: int = int(state_conf()[JOIN_FORMAT])  # of joins


def union(left: DataFrame, right: DataFrame) -> DataFrame:
    """Append mode: two joins side by side, partitioned by different columns: with tasks of their own in one stage."""
    near = events_of(left).where("value % 3 = 0").select(F.col("k").alias("ka"), F.col("value").alias("a"))
    other = events_of(right).where("value % 3 = 1").select(F.col("k").alias("kb"), F.col("value").alias("b"))
    pairs = near.join(other, F.expr("ka = kb and abs(a - b) <= 200"))
    return join(left, right).union(pairs.select("a", "ka", "b"))


def _distinct_stream(spark: SparkSession) -> DataFrame:
    rows = source(spark).select("value")
    events = events_of(rows).withWatermark("ts", "0 seconds")
    windowed = events.withColumn("w", F.window("ts", "20 seconds")).select("k", "w", "value")
    unique = windowed.dropDuplicates(["k", "w"])
    counted = unique.groupBy("k", "w").agg(F.count("*").alias("n"))
    return counted.select("k", F.col("w.start").cast("long").alias("start"), "n")


def _distinct_batch(spark: SparkSession, batches: int) -> DataFrame:
    """Windows that had closed when the last batch ran: its watermark is the greatest event time before it."""
    watermark = events_of(consumed(spark, batches - 1)).agg(F.max("ts")).collect()[0][0]
    windowed = events_of(consumed(spark, batches)).withColumn("w", F.window("ts", "20 seconds"))
    closed = windowed.where(F.col("w.end") <= F.lit(watermark))
    return closed.select("k", F.col("w.start").cast("long").alias("start")).distinct().withColumn("n", F.lit(1))


QUERIES = {
    "aggregation": StatefulQuery(
        "aggregation",
        "update",
        lambda spark: aggregation(source(spark)),
        lambda spark, batches: aggregation(consumed(spark, batches)),
        key="k",
    ),
    "join4": StatefulQuery(
        "join4",
        "append",
        lambda spark: join(source(spark), source(spark)),
        lambda spark, batches: join(consumed(spark, batches), consumed(spark, batches)),
        key=None,
    ),
    "join2": StatefulQuery(
        "join2",
        "append",
        lambda spark: join(source(spark), source(spark)),
        lambda spark, batches: join(consumed(spark, batches), consumed(spark, batches)),
        key=None,
        state_format=2,
    ),
    "union": StatefulQuery(
        "union",
        "append",
        lambda spark: union(source(spark), source(spark)),
        lambda spark, batches: union(consumed(spark, batches), consumed(spark, batches)),
        key=None,
    ),
    "distinct": StatefulQuery(
        "distinct",
        "append",
        _distinct_stream,
        _distinct_batch,
        key=None,
    ),
}
