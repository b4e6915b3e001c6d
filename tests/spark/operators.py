"""The rest of Spark's stateful operators, each as a stream and as a batch computation over the same rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas as pd
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tests.spark.queries import MS_PER_BATCH, ROWS_PER_BATCH, START_MS, StatefulQuery, consumed, events_of, source
from tests.spark.transform import timers_stream, ttl_stream


def with_watermark(rows: DataFrame, delay: str = "0 seconds") -> DataFrame:
    return events_of(rows).withWatermark("ts", delay)


def watermark(spark: SparkSession, batches: int) -> Any:
    """The watermark of the last of `batches` batches: the greatest event time before it."""
    return events_of(consumed(spark, batches - 1)).agg(F.max("ts")).collect()[0][0]


# ---- arbitrary state through pandas


def _pandas_stream(spark: SparkSession) -> DataFrame:
    def add(key: tuple[int], frames: Iterator[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
        count, total = state.get if state.exists else (0, 0)
        for frame in frames:
            count, total = count + len(frame), total + int(frame["value"].sum())
        state.update((count, total))
        yield pd.DataFrame({"k": [key[0]], "n": [count], "s": [total]})

    grouped = events_of(source(spark)).groupBy("k")
    schema = "k int, n bigint, s bigint"
    return grouped.applyInPandasWithState(add, schema, "n bigint, s bigint", "update", "NoTimeout")


def _pandas_batch(spark: SparkSession, batches: int) -> DataFrame:
    grouped = events_of(consumed(spark, batches)).groupBy("k")
    return grouped.agg(F.count("*").alias("n"), F.sum("value").alias("s"))


# ---- transformWithState (the processors are in transform.py)


def _ttl_batch(spark: SparkSession, batches: int) -> DataFrame:
    rows = events_of(consumed(spark, batches)).withColumn("r", F.col("value") % 5)
    return rows.groupBy("k").agg(
        F.count("*").alias("n"),
        F.countDistinct("r").alias("classes"),
        F.countDistinct(F.floor(F.col("value") / ROWS_PER_BATCH)).alias("batches"),
        F.lit(0).alias("stale"),
    )


def _timers_batch(spark: SparkSession, batches: int) -> DataFrame:
    width = 2 * MS_PER_BATCH
    rows = events_of(consumed(spark, batches)).withColumn("ms", F.unix_millis("ts"))
    windows = rows.withColumn("start", F.col("ms") - F.pmod(F.col("ms") - START_MS, F.lit(width)))
    counted = windows.groupBy("k", "start").agg(F.count("*").alias("n"))
    fired = F.lit(int(watermark(spark, batches).timestamp() * 1000))
    return counted.where(F.col("start") + width <= fired)


# ---- windows


def _sessions(rows: DataFrame) -> DataFrame:
    counted = rows.groupBy("k", F.session_window("ts", "3 seconds")).agg(F.count("*").alias("n"))
    return counted.select("k", F.unix_micros("session_window.end").alias("ended"), "n")


def _sessions_batch(spark: SparkSession, batches: int) -> DataFrame:
    """Watermarks are whole milliseconds, ends of sessions are not."""
    closed = F.lit(int(watermark(spark, batches).timestamp() * 1000) * 1000)
    return _sessions(events_of(consumed(spark, batches))).where(F.col("ended") <= closed)


def _chained(rows: DataFrame) -> DataFrame:
    fine = rows.groupBy("k", F.window("ts", "5 seconds")).agg(F.count("*").alias("n"))
    coarse = fine.groupBy("k", F.window(F.window_time("window"), "20 seconds").alias("w"))
    sums = coarse.agg(F.sum("n").alias("n"), F.count("*").alias("windows"))
    return sums.select("k", F.unix_millis("w.end").alias("ended"), "n", "windows")


def _chained_batch(spark: SparkSession, batches: int) -> DataFrame:
    closed = F.lit(int(watermark(spark, batches).timestamp() * 1000))
    return _chained(events_of(consumed(spark, batches))).where(F.col("ended") <= closed)


# ---- deduplication: every odd row repeats an even one of the batch before


def _repeating(rows: DataFrame) -> DataFrame:
    back = ROWS_PER_BATCH + 1
    return rows.select(F.expr(f"if(value % 2 = 0, value, value - {back})").alias("id"), "ts")


def _unique_stream(spark: SparkSession) -> DataFrame:
    rows = _repeating(with_watermark(source(spark), "60 seconds"))
    return rows.dropDuplicatesWithinWatermark(["id"]).select("id")


def _unique_batch(spark: SparkSession, batches: int) -> DataFrame:
    return _repeating(events_of(consumed(spark, batches))).select("id").distinct()


# ---- left outer join; event time moves in steps of a batch, bounds lie between them


def _stepped(rows: DataFrame) -> DataFrame:
    batch = F.floor(F.col("value") / ROWS_PER_BATCH)
    return rows.select("value", F.timestamp_millis(F.lit(START_MS) + batch * MS_PER_BATCH).alias("ts"))


def _outer(left: DataFrame, right: DataFrame) -> DataFrame:
    a = left.where("value % 2 = 0").select(F.col("value").alias("a"), F.col("ts").alias("ats"))
    b = right.where("value % 4 = 0").select(F.col("value").alias("b"), F.col("ts").alias("bts"))
    matching = F.expr("a = b and bts >= ats and bts <= ats + interval 5 seconds")
    return a.join(b, matching, "leftOuter").select("a", F.unix_millis("ats").alias("at"), "b")


def _outer_stream(spark: SparkSession) -> DataFrame:
    def side() -> DataFrame:
        return _stepped(source(spark)).withWatermark("ts", "0 seconds")

    return _outer(side(), side())


def _outer_batch(spark: SparkSession, batches: int) -> DataFrame:
    rows = _stepped(consumed(spark, batches))
    final = F.lit(START_MS + (batches - 2) * MS_PER_BATCH)
    return _outer(rows, rows).where(F.col("b").isNotNull() | (F.col("at") + 5000 < final))


OPERATORS = {
    query.name: query
    for query in (
        StatefulQuery("transform-ttl", "update", ttl_stream, _ttl_batch, key="k"),
        StatefulQuery("transform-timers", "append", timers_stream, _timers_batch, key=None),
        StatefulQuery("apply-in-pandas", "update", _pandas_stream, _pandas_batch, key="k"),
        StatefulQuery("sessions", "append", lambda s: _sessions(with_watermark(source(s))), _sessions_batch, key=None),
        StatefulQuery("chained", "append", lambda s: _chained(with_watermark(source(s))), _chained_batch, key=None),
        StatefulQuery("unique", "append", _unique_stream, _unique_batch, key=None),
        StatefulQuery("outer-join", "append", _outer_stream, _outer_batch, key=None),
    )
}
