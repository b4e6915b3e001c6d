"""Parts of the tests of restructure that other tests use as well."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from query_evolution import Restructured, restructure, sketch
from rhino.testing import LocalCluster
from tests.spark.conftest import wait_for
from tests.spark.queries import ROWS_PER_BATCH, StatefulQuery, source
from tests.spark.run import Run, job

SETTINGS = {
    "spark.sql.shuffle.partitions": "2",
    # Snapshots and changelogs both are linked.
    "spark.sql.streaming.stateStore.minDeltasForSnapshot": "2",
}


NAME = "restructured"


def rows_of(rows: DataFrame) -> DataFrame:
    """Each column follows from the one before, so it does not matter which of several duplicates is kept."""
    d = F.pmod(F.hash("value"), F.lit(6007)).alias("d")
    return rows.select(d).withColumn("e", F.col("d") % 1009).withColumn("k", F.col("e") % 97)


def counts(rows: DataFrame) -> DataFrame:
    """The former code. Operator 0 counts, operator 1 removes duplicates of `d`."""
    return rows.dropDuplicates(["d"]).groupBy("k").count()


def inserted(rows: DataFrame) -> DataFrame:
    """Operator 1 is born between both, so that operator 1 becomes operator 2."""
    return rows.dropDuplicates(["d"]).dropDuplicates(["e"]).groupBy("k").count()


def removed(rows: DataFrame) -> DataFrame:
    """Only operator 2 stays, as operator 0."""
    return rows.dropDuplicates(["d"])


def query(code: Callable[[DataFrame], DataFrame], output_mode: str = "update", key: str | None = "k") -> StatefulQuery:
    def unused(spark: SparkSession, batches: int) -> DataFrame:
        raise NotImplementedError

    return StatefulQuery(NAME, output_mode, lambda spark: code(rows_of(source(spark))), unused, key)


COUNTS, INSERTED, REMOVED = query(counts), query(inserted), query(removed, "append", None)


def read(spark: SparkSession, first: int, end: int) -> DataFrame:
    """What these batches have read."""
    values = spark.range(first * ROWS_PER_BATCH, end * ROWS_PER_BATCH).withColumnRenamed("id", "value")
    return rows_of(values)


def counted(*parts: DataFrame) -> DataFrame:
    return reduce(DataFrame.unionAll, [part.select("k") for part in parts]).groupBy("k").count()


class Story:
    """One query after another on the same rows, with one output."""

    def __init__(
        self,
        cluster: LocalCluster,
        spark: SparkSession,
        folder: Path,
        locate: Callable[[Path], str],
        query: StatefulQuery = COUNTS,
    ) -> None:
        self.cluster = cluster
        self.spark = spark
        self.folder = folder
        self._locate = locate
        self.run = Run(spark, query, folder / "first", locate)

    def go(self, batches: int) -> int:
        """Runs the query for some batches, and stops it. Returns how many have run in all."""
        running = self.run.start()
        self.run.advance(running, batches)
        running.stop()
        wait_for(lambda: job(self.cluster, self.run.query.name) is None, "the driver has reported the end")
        return self.run.logged()

    def turn(self, query: StatefulQuery, name: str) -> Restructured:
        """The new code takes over, and writes to the same place."""
        planned = sketch(
            query.stream(self.spark),
            self.run.checkpoint,
            self.folder / f"{name}-sketch",
            output_mode=query.output_mode,
        )
        following = Run(self.spark, query, self.folder / name, self._locate)
        made = restructure(self.cluster.manager, self.run.checkpoint, following.checkpoint, planned)
        following.output = self.run.output
        self.run = following
        assert following.logged() == made.batch + 1
        return made
