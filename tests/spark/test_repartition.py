"""Spark's offline repartitioning of state: on rhino:// as it is, and between release and adopt for Rhino's provider."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from rhino import rhino_checkpoint
from rhino.client.overview import fetch_overview
from rhino.testing import LocalCluster
from spark_connector.conf import PROVIDER_CLASSES
from spark_connector.query_checkpoint import PROVIDER_KEY
from tests.spark.conftest import SharedSession
from tests.spark.operators import OPERATORS
from tests.spark.queries import QUERIES
from tests.spark.run import Run, assert_same_rows
from tests.spark.support.takeover import Tool, wait_until_over

pytestmark = [pytest.mark.spark, pytest.mark.nightly, pytest.mark.timeout(420)]
SETTINGS = {
    "spark.sql.shuffle.partitions": "3",
    "spark.sql.streaming.stateStore.minDeltasForSnapshot": "3",
}
ONE_BATCH = "1 hour"  # the first batch of a run begins at once


@pytest.fixture
def spark(shared: SharedSession) -> Iterator[SparkSession]:
    with shared.with_settings(SETTINGS) as session:
        yield session


def run_on(run: Run, provider: str, batches: int) -> None:
    """Runs some batches and stops between two: Spark repartitions no state of which a batch has begun."""
    run.spark.conf.set(PROVIDER_KEY, provider)
    running = run.start()
    run.advance(running, batches - 1)
    running.stop()
    while True:
        running = run.start(trigger=ONE_BATCH)
        run.advance(running, 1)
        running.stop()
        begun = max(int(path.name) for path in (run.checkpoint / "offsets").iterdir() if path.name.isdigit())
        if begun + 1 == run.logged():
            return


def repartition(run: Run, location: str, partitions: int) -> None:
    """Spark's own call; it adds a batch that reads nothing and writes nothing out."""
    before = run.logged()
    run.spark._streamingCheckpointManager.repartition(location, partitions)
    assert run.logged() == before + 1


def assert_exact(run: Run) -> None:
    """The newest row of each key equals the batch computation over as many batches as have written."""
    written = sorted(int(path.name) for path in run.output.iterdir())
    got = run.spark.read.parquet(*[f"{run.output}/{batch}" for batch in written])
    key = run.query.key
    if key is not None:
        newest = got.groupBy(key).agg(F.max("batch_id").alias("batch_id"))
        got = got.join(newest, [key, "batch_id"])
    assert_same_rows(got.drop("batch_id"), run.query.batch(run.spark, len(written)))


@pytest.mark.parametrize(
    "name", ["aggregation", *[pytest.param(n, marks=pytest.mark.nightly) for n in ("apply-in-pandas", "sessions")]]
)
def test_on_rhino_it_works_as_it_is(name: str, spark: SparkSession, tmp_path: Path) -> None:
    run = Run(spark, (OPERATORS | QUERIES)[name], tmp_path, rhino_checkpoint)
    stock = PROVIDER_CLASSES["checkpoint"]
    run_on(run, stock, 4)
    repartition(run, run.location, 5)
    run_on(run, stock, 4)
    repartition(run, run.location, 2)
    run_on(run, stock, 3)
    assert_exact(run)


def test_a_query_of_rhinos_provider_is_released_repartitioned_and_adopted(
    cluster: LocalCluster, spark: SparkSession, tmp_path: Path
) -> None:
    tool, run = Tool(cluster), Run(spark, QUERIES["aggregation"], tmp_path)
    run_on(run, PROVIDER_CLASSES["provider"], 4)
    job = next(known.job for known in fetch_overview(cluster.manager).jobs if known.job in metadata(run))
    for partitions in (5, 2):
        wait_until_over(cluster, job)
        tool("release", run.checkpoint)
        spark.conf.set(PROVIDER_KEY, PROVIDER_CLASSES["checkpoint"])
        repartition(run, str(run.checkpoint), partitions)
        tool("adopt", run.checkpoint)
        run_on(run, PROVIDER_CLASSES["provider"], 4)
    assert_exact(run)


def metadata(run: Run) -> str:
    return (run.checkpoint / "metadata").read_text()
