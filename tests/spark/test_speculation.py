"""Speculative tasks: two attempts write the same version of a store, on two workers; one of them is killed."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from rhino.testing import LocalCluster
from tests.spark.queries import StatefulQuery, aggregation, consumed, source
from tests.spark.run import Run, assert_equals_batch

pytestmark = [pytest.mark.spark, pytest.mark.nightly, pytest.mark.timeout(400)]
SETTINGS = {
    "spark.sql.shuffle.partitions": "4",
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.quantile": "0.25",
    "spark.speculation.multiplier": "1.2",
    "spark.speculation.minTaskRuntime": "100ms",
    "spark.sql.streaming.stateStore.minDeltasForSnapshot": "2",
    "spark.sql.streaming.stateStore.maintenanceInterval": "300ms",
}


def slowly(rows: DataFrame, slow_host: str) -> DataFrame:
    """The same rows; tasks on `slow_host` hold their store open for seconds."""

    @F.pandas_udf("bigint")  # type: ignore[untyped-decorator]
    def held(values: pd.Series) -> pd.Series:
        import os
        import time

        if os.environ.get("SPARK_LOCAL_IP") == slow_host:
            time.sleep(4)
        return values

    return rows.withColumn("n", held("n"))


def test_output_and_state_are_exact_with_speculation(cluster: LocalCluster, tmp_path: Path) -> None:
    slow_host = cluster.workers[1].host
    query = StatefulQuery(
        "speculated",
        "update",
        lambda spark: slowly(aggregation(source(spark)), slow_host),
        lambda spark, batches: aggregation(consumed(spark, batches)),
        key="k",
    )
    log = cluster.log_dir / "spark-driver.log"
    seen = len(log.read_text())
    spark: SparkSession = cluster.session("speculation", SETTINGS)
    spark.sparkContext.setLogLevel("INFO")  # Spark tells of speculation there
    try:
        run = Run(spark, query, tmp_path)
        for _ in range(2):  # the second run loads what the first one's attempts have left
            running = run.start()
            run.advance(running, 4)
            running.stop()
        told = log.read_text()[seen:]
        assert "speculatable" in told, "no task was speculated"
        assert "another attempt succeeded" in told, "no attempt was killed for another's success"
        assert_equals_batch(run)
    finally:
        spark.sparkContext.setLogLevel("WARN")
        spark.stop()
