"""Mistakes that people make when they change a function: a shadow run finds each of them."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, DoubleType, LongType

from query_evolution import ShadowReport, branch, shadow
from rhino.testing import LocalCluster
from tests.spark.conftest import SharedSession
from tests.spark.modified import SCORED
from tests.spark.queries import ROWS_PER_BATCH, source
from tests.spark.run import Run
from tests.spark.support.shadow import written

# test_shadow.py has two of them in CI: a wrong value of a rare key, and an error.
pytestmark = [pytest.mark.spark, pytest.mark.nightly, pytest.mark.timeout(900)]
RARE = 3 * ROWS_PER_BATCH + 5  # one row of batch 3
Function = Callable[[int], float | None]


@pytest.fixture
def spark(shared: SharedSession) -> Iterator[SparkSession]:
    with shared.with_settings({"spark.sql.shuffle.partitions": "2"}) as session:
        yield session


def query(
    spark: SparkSession,
    score: Function,
    kind: DataType | None = None,
    change: Callable[[DataFrame], DataFrame] = lambda rows: rows,
) -> DataFrame:
    scored = F.udf(score, kind or LongType())("value").alias("y")
    rows = change(source(spark).select("value", (F.col("value") % 89).alias("k"), scored))
    return rows.groupBy("k").agg(F.count(F.lit(1)).alias("n"), F.sum("y").alias("s"))


def rightly(value: int) -> int:
    return value + 1


def on_a_rare_row(other: Callable[[int], float | None]) -> Function:
    def score(value: int) -> float | None:
        return other(value) if value == RARE else value + 1

    return score


def failing(value: int) -> int:
    raise ValueError(f"no score for {value}")


def randomly(value: int) -> int:
    return value + random.randrange(2)


WRONG: dict[str, Callable[[SparkSession], DataFrame]] = {
    "the result is too small by one": lambda spark: query(spark, lambda value: value),
    "a rare row is too large by one": lambda spark: query(spark, on_a_rare_row(lambda value: value + 2)),
    "a rare row has no result": lambda spark: query(spark, on_a_rare_row(lambda value: None)),
    "the sign is lost": lambda spark: query(spark, on_a_rare_row(lambda value: -value - 1)),
    "the result depends on chance": lambda spark: query(spark, randomly),
    "a row is lost": lambda spark: query(spark, rightly, None, lambda rows: rows.where(f"value != {RARE}")),
    "a row is twice": lambda spark: query(
        spark, rightly, None, lambda rows: rows.withColumn("x", F.expr(f"explode(sequence(0, int(value = {RARE})))"))
    ),
    "rows of a key come under another one": lambda spark: query(
        spark, rightly, None, lambda rows: rows.withColumn("k", F.expr("if(k = 88, 0L, k)"))
    ),
    "null is taken for a key": lambda spark: query(
        spark, rightly, None, lambda rows: rows.withColumn("k", F.expr(f"if(value = {RARE}, null, k)"))
    ),
}


def test_every_mistake_is_found(cluster: LocalCluster, spark: SparkSession, tmp_path: Path) -> None:
    run = Run(spark, SCORED, tmp_path / "live")
    running = run.start()
    run.advance(running, 4)
    running.stop()

    def compared(name: str, rows: DataFrame) -> ShadowReport:
        folder = tmp_path / name
        branch(cluster.manager, run.checkpoint, folder, batch=2)
        return shadow(rows, run.checkpoint, folder, written(run), output_mode="update", batches=1)

    usual = compared("right", query(spark, rightly))
    assert usual.agrees
    reports = {name: compared(name, wrong(spark)) for name, wrong in WRONG.items()}
    assert [name for name, report in reports.items() if len(report.different) != 1] == []
    failed = compared("failing", query(spark, on_a_rare_row(failing)))
    assert failed.failure is not None
    assert f"no score for {RARE}" in failed.failure.error

    def slow(value: int) -> int:
        time.sleep(0.02)
        return value + 1

    slower = compared("slow", query(spark, slow))
    assert slower.agrees
    assert slower.batches[0].shadow_s > usual.batches[0].shadow_s + 2, "600 rows by three tasks"
    typed = compared("type", query(spark, lambda value: value + 1.0, DoubleType()))
    assert typed.failure is not None, "the state of a sum of another type cannot be read"
