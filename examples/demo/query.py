"""NBQ8 (Rhino 5.1): persons joined with the auctions that they opened in the same tumbling window."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from workloads.nexmark import events, source
from workloads.nexmark.settings import Generator

NAME = "nbq8"
GENERATOR = Generator(padded=True)
WINDOW_S = 300
# Much longer than the event time of the demo, so that all state stays, as with the paper's window of 12 hours.
LATENESS_S = 3600
COLUMNS = ("window_ms", "person", "name", "auction", "category", "initial_bid", "expires", "payload_md5")


@dataclass(frozen=True, slots=True)
class Workload:
    """`persons` persons and three times as many auctions, in `batches` equal batches."""

    persons: int
    batches: int

    @property
    def auctions(self) -> int:
        return 3 * self.persons

    @property
    def events(self) -> int:
        return self.persons + self.auctions


def streams(spark: SparkSession, load: Workload) -> tuple[DataFrame, DataFrame]:
    """Returns persons and auctions as streams that advance together."""
    persons = source.stream(spark, source.equal_sizes(load.persons, load.batches))
    auctions = source.stream(spark, source.equal_sizes(load.auctions, load.batches))
    return made(persons, auctions)


def start(spark: SparkSession, load: Workload, work: Path) -> StreamingQuery:
    """Starts or continues the query: its checkpoint and its output are below `work`."""
    writer = nbq8(*streams(spark, load)).writeStream.queryName(NAME).outputMode("append").format("parquet")
    located = writer.option("path", str(work / "output")).option("checkpointLocation", str(work / "checkpoint"))
    return located.start()


def batches(spark: SparkSession, load: Workload) -> tuple[DataFrame, DataFrame]:
    """Returns the same events as batch DataFrames."""
    return made(source.batch(spark, load.persons), source.batch(spark, load.auctions))


def made(persons: DataFrame, auctions: DataFrame) -> tuple[DataFrame, DataFrame]:
    """Maps row k of each to the k-th person or auction of the generator. There are no bids and no gaps in the ids."""
    persons = events.persons(persons.selectExpr("n * 50 as n"), GENERATOR)
    auctions = events.auctions(auctions.selectExpr("n div 3 * 50 + 1 + n % 3 as n"), GENERATOR)
    return persons, auctions


def nbq8(persons: DataFrame, auctions: DataFrame) -> DataFrame:
    """Returns one row per auction whose seller registered in the same window, with `COLUMNS`.

    The hash covers `extra` of both sides. So all bytes of both records are state, and damage to them is visible.
    """
    window, lateness = f"{WINDOW_S} seconds", f"{LATENESS_S} seconds"
    left = persons.withWatermark("ts", lateness).select(
        F.col("id").alias("person"), "name", F.col("extra").alias("person_extra"), F.window("ts", window).alias("pw")
    )
    right = auctions.withWatermark("ts", lateness).select(
        F.col("id").alias("auction"),
        *("seller", "category", "initial_bid", "expires"),
        F.col("extra").alias("auction_extra"),
        F.window("ts", window).alias("aw"),
    )
    joined = left.join(right, F.expr("person = seller and pw = aw"))
    return joined.select(
        F.unix_millis("pw.start").alias("window_ms"),
        *("person", "name", "auction", "category", "initial_bid", "expires"),
        F.md5(F.concat("person_extra", "auction_extra")).alias("payload_md5"),
    )
