"""A streaming query of the Spark tests, from its start to the comparison of its output."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from tests.spark.conftest import wait_for
from tests.spark.queries import StatefulQuery


class Run:
    """One streaming query with its folders; can be started again from its checkpoint."""

    def __init__(self, spark: SparkSession, query: StatefulQuery, folder: Path) -> None:
        self.spark = spark
        self.query = query
        self.checkpoint = folder / "checkpoint"
        self.output = folder / "output"

    def start(self) -> StreamingQuery:
        self.spark.conf.set("spark.sql.streaming.join.stateFormatVersion", str(self.query.state_format))
        output = str(self.output)

        def sink(rows: DataFrame, batch_id: int) -> None:
            rows.withColumn("batch_id", F.lit(batch_id)).write.mode("overwrite").parquet(f"{output}/{batch_id}")

        return (
            self.query.stream(self.spark)
            .writeStream.queryName(self.query.name)
            .outputMode(self.query.output_mode)
            .option("checkpointLocation", str(self.checkpoint))
            .trigger(processingTime="500 milliseconds")
            .foreachBatch(sink)
            .start()
        )

    def logged(self) -> int:
        """Batches in Spark's commit log."""
        commits = self.checkpoint / "commits"
        names = [int(p.name) for p in commits.iterdir() if p.name.isdigit()] if commits.exists() else []
        return max(names, default=-1) + 1

    def advance(self, running: StreamingQuery, batches: int) -> None:
        goal = self.logged() + batches

        def reached() -> bool:
            error = running.exception()
            assert error is None, str(error)
            return self.logged() >= goal

        wait_for(reached, f"{self.query.name}: batch {goal}")

    def result(self, batches: int) -> DataFrame:
        rows = self.spark.read.parquet(*[f"{self.output}/{b}" for b in range(batches)])
        if self.query.key is None:
            return rows.drop("batch_id")
        newest = rows.groupBy(self.query.key).agg(F.max("batch_id").alias("batch_id"))
        return rows.join(newest, [self.query.key, "batch_id"]).drop("batch_id")

    def assert_exact(self) -> None:
        """The output of the logged batches equals a batch computation over the same rows."""
        batches = self.logged()
        got, expected = self.result(batches).cache(), self.query.batch(self.spark, batches).cache()
        expected = expected.select(*[F.col(c).cast(got.schema[c].dataType) for c in got.columns])
        assert expected.count() > 50
        missing, extra = expected.exceptAll(got).count(), got.exceptAll(expected).count()
        assert (missing, extra) == (0, 0)
