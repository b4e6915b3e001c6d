"""A query in several versions of its code, for the tests of supervised restarts."""

from __future__ import annotations

import signal
import threading
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.readwriter import DataStreamWriter
from pyspark.sql.types import LongType

from query_evolution import Supervised, Trial, supervise
from tests.spark.queries import ROWS_PER_BATCH, consumed, source

NAME = "supervised"
VALUES = {
    "plus": "value + 1",
    "once": "value + 1",
    "halts": "value + 1",
    "triple": "value * 3",
    "minus": "-value",
    "fails": "value",
}
TRIAL = Trial(batches=2, give_up_s=90, ask_s=120, rehearse_s=30)
SILENT_S = 10.0  # of a driver, before a standby takes the query from it
Rows = Callable[[DataFrame], DataFrame]


def scored(version: str, rows: DataFrame) -> DataFrame:
    """With a Python function, so that Python workers take part."""
    y = F.udf(lambda value: value, LongType())(F.expr(VALUES[version]))
    return rows.select((F.col("value") % 89).alias("k"), y.alias("y"))


def totals(rows: DataFrame) -> DataFrame:
    return rows.groupBy("k").agg(F.count(F.lit(1)).alias("n"), F.sum("y").alias("s"))


def start(
    spark: SparkSession,
    folder: Path,
    version: str,
    code: Rows = totals,
    trial: Trial = TRIAL,
    *,
    standby: bool = False,
) -> Supervised:
    """The query in `folder`. Each version writes its name beside its rows. The sink of `fails` fails.

    The sink of `once` keeps the first output of a batch, whatever happens in which order. The sink of `halts` stops
    this process when it has written.
    """

    def sink(rows: DataFrame, batch_id: int) -> None:
        if version == "fails":
            rows.count()  # the state is loaded, and written
            raise ValueError("no room for these rows")
        named = rows.select("*", F.lit(batch_id).alias("batch_id"), F.lit(version).alias("version"))
        if version != "once":
            named.write.mode("overwrite").parquet(f"{folder}/output/{batch_id}")
            if version == "halts":
                signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)  # before this thread goes on
            return
        attempt = Path(f"{folder}/attempts/{uuid.uuid4()}")
        named.write.parquet(str(attempt))
        Path(f"{folder}/output").mkdir(exist_ok=True)
        with suppress(OSError):  # it is there
            attempt.rename(f"{folder}/output/{batch_id}")

    writer: DataStreamWriter = code(scored(version, source(spark))).writeStream.queryName(NAME)
    writer = writer.trigger(processingTime="100 milliseconds").foreachBatch(sink)
    return supervise(writer, f"{folder}/checkpoint", output_mode="update", trial=trial, standby=standby)


def versions(spark: SparkSession, folder: Path, batches: int) -> dict[int, str]:
    """By batch, the version that has written its output. Raises AssertionError if a batch has several."""
    written = spark.read.parquet(*[f"{folder}/output/{batch}" for batch in range(batches)])
    found = written.select("batch_id", "version").distinct().collect()
    assert len(found) == batches, found
    return {row.batch_id: row.version for row in found}


def expected(spark: SparkSession, ran: Mapping[int, str]) -> DataFrame:
    """What a batch computation makes of the same rows, if each batch has the version that has run it."""
    batch = F.floor(F.col("value") / ROWS_PER_BATCH)
    y = F.lit(0).cast("long")
    for version, text in VALUES.items():
        y = F.when(batch.isin([b for b, its in ran.items() if its == version]), F.expr(text)).otherwise(y)
    rows = consumed(spark, len(ran)).select((F.col("value") % 89).alias("k"), y.alias("y"))
    return totals(rows)


def result(spark: SparkSession, folder: Path, batches: int) -> DataFrame:
    """The newest row of each key."""
    rows = spark.read.parquet(*[f"{folder}/output/{batch}" for batch in range(batches)]).drop("version")
    newest = rows.groupBy("k").agg(F.max("batch_id").alias("batch_id"))
    return rows.join(newest, ["k", "batch_id"]).drop("batch_id")
