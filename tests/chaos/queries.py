"""The two queries under chaos: NBQ8 (a join with growing state) and an aggregation with hot keys.

A third one, `modified`, is the aggregation with a Python function and a point, for crash tests of modifications. In
`jarred` the function is one of Java, of `present.jar` in the folder of the query.
"""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import LongType

from examples.demo.query import Workload, batches, made, nbq8
from tests.jvm_functions import SCORE
from workloads.nexmark.settings import BASE_MS

PERSONS_PER_BATCH = 200
AUCTIONS_PER_BATCH = 3 * PERSONS_PER_BATCH
ROWS_PER_BATCH = 2000
KEYS = 1009
TRIGGER = "500 milliseconds"
NAMES = ("nbq8", "aggregation")


def _values(spark: SparkSession, per_batch: int) -> DataFrame:
    source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", per_batch).option("numPartitions", 2)
    return source.option("startTimestamp", BASE_MS).load().selectExpr("value as n")


def stream(spark: SparkSession, name: str) -> DataFrame:
    """Endless and replayable: batch n reads the same rows in every run."""
    if name == "nbq8":
        return nbq8(*made(_values(spark, PERSONS_PER_BATCH), _values(spark, AUCTIONS_PER_BATCH)))
    rows = _values(spark, ROWS_PER_BATCH).selectExpr(f"n * 7919 % {KEYS} as k", "n as value")
    if name == "modified":
        rows = _scored(rows)
    if name == "jarred":
        rows = _observed(rows.selectExpr("k", "score(value) as value"))
    return rows.groupBy("k").agg(F.count("*").alias("n"), F.sum("value").alias("s"), F.max("value").alias("m"))


def _scored(rows: DataFrame) -> DataFrame:
    def score(value: int) -> int:
        return value + 1

    return _observed(rows.select("k", F.udf(score, LongType())("value").alias("value")))


def _observed(scored: DataFrame) -> DataFrame:
    return scored.observe("scored", F.count(F.lit(1)).alias("rows"))


def start(spark: SparkSession, name: str, folder: Path) -> StreamingQuery:
    """Starts the query, or goes on from its checkpoint in `folder`. The sink overwrites a batch that comes again."""
    output = f"{folder}/{name}/output"
    if name == "jarred":
        spark.sql(f"ADD JAR '{folder}/present.jar'")
        spark.udf.registerJavaFunction("score", SCORE, LongType())

    def sink(rows: DataFrame, batch_id: int) -> None:
        rows.write.mode("overwrite").parquet(f"{output}/{batch_id}")

    return (
        stream(spark, name)
        .writeStream.queryName(name)
        .outputMode("append" if name == "nbq8" else "update")
        .option("checkpointLocation", f"{folder}/{name}/checkpoint")
        .trigger(processingTime=TRIGGER)
        .foreachBatch(sink)
        .start()
    )


def logged(folder: Path, name: str) -> int:
    """Batches in Spark's commit log."""
    commits = folder / name / "checkpoint" / "commits"
    names = [int(p.name) for p in commits.iterdir() if p.name.isdigit()] if commits.exists() else []
    return max(names, default=-1) + 1


def write_events(spark: SparkSession, count: int, folder: Path) -> None:
    """The persons and auctions of `count` batches as parquet, for the oracle."""
    persons, auctions = batches(spark, Workload(count * PERSONS_PER_BATCH, 1))
    persons.write.parquet(f"{folder}/persons")
    auctions.write.parquet(f"{folder}/auctions")
