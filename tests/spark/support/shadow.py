"""Parts of the tests of shadow that other tests use as well."""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import DataFrame, SparkSession

from tests.spark.run import Run


def written(run: Run) -> Callable[[SparkSession, int], DataFrame]:
    return lambda spark, batch: spark.read.parquet(f"{run.output}/{batch}").drop("batch_id")
