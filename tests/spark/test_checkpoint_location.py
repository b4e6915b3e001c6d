"""Queries of Spark's own provider with the checkpoint on rhino://: every operator, a handover, losses, restarts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from rhino import rhino_checkpoint
from rhino.client.overview import fetch_overview
from rhino.testing import LocalCluster
from spark_connector.conf import PROVIDER_CLASSES
from tests.spark.conftest import SharedSession
from tests.spark.operators import OPERATORS
from tests.spark.queries import QUERIES
from tests.spark.run import Run, assert_equals_batch, hand_over_one

pytestmark = [pytest.mark.spark, pytest.mark.nightly, pytest.mark.timeout(420)]
PARTITIONS = 3
SETTINGS = {
    "spark.sql.shuffle.partitions": str(PARTITIONS),
    "spark.sql.streaming.stateStore.providerClass": PROVIDER_CLASSES["checkpoint"],
    "spark.sql.streaming.stateStore.minDeltasForSnapshot": "3",
}


@pytest.fixture
def spark(shared: SharedSession) -> Iterator[SparkSession]:
    with shared.with_settings(SETTINGS) as session:
        yield session


def state_files(checkpoint: Path) -> list[str]:
    """Files of stores in the query checkpoint itself: there must be none."""
    return [str(p) for p in (checkpoint / "state").rglob("*") if p.suffix in {".changelog", ".zip", ".sst", ".log"}]


def test_transform_moves_and_survives_and_is_readable(
    cluster: LocalCluster, spark: SparkSession, tmp_path: Path
) -> None:
    run = Run(spark, OPERATORS["transform-ttl"], tmp_path, rhino_checkpoint)
    running = run.start()
    run.advance(running, 3)
    hand_over_one(cluster, run.query.name, PARTITIONS)
    run.advance(running, 1)
    cluster.kill_executor(0)
    run.advance(running, 3)
    running.stop()
    running = run.start()
    run.advance(running, 2)
    running.stop()
    assert_equals_batch(run)
    assert not state_files(run.checkpoint)
    job = json.loads((run.checkpoint / "metadata").read_text())["id"]
    assert job in {known.job for known in fetch_overview(cluster.manager).jobs}
    reader = spark.read.format("statestore").option("stateVarName", "classes").option("flattenCollectionTypes", "true")
    state = reader.load(run.location)
    total = state.agg(F.sum("user_map_value.value.n")).collect()[0][0]
    expected = run.query.batch(spark, run.logged()).agg(F.sum("n")).collect()[0][0]
    assert total == expected


@pytest.mark.parametrize("name", [*[name for name in OPERATORS if name != "transform-ttl"], *QUERIES])
def test_output_equals_a_batch_computation(name: str, spark: SparkSession, tmp_path: Path) -> None:
    run = Run(spark, (OPERATORS | QUERIES)[name], tmp_path, rhino_checkpoint)
    running = run.start()
    run.advance(running, 5)
    running.stop()
    running = run.start()
    run.advance(running, 4)
    running.stop()
    assert_equals_batch(run)
    assert not state_files(run.checkpoint)
