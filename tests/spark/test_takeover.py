"""`rhino adopt` and `rhino release` on real checkpoints: a query goes from Spark's provider to Rhino and back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from rhino import rhino_checkpoint
from rhino.testing import LocalCluster
from rhino_core.errors import AlreadyThereError, ConflictError, PreconditionError
from spark_connector.query_checkpoint import FORMAT_KEY, PROVIDER_KEY, QueryCheckpoint
from tests.spark.operators import OPERATORS
from tests.spark.queries import QUERIES
from tests.spark.run import Run, assert_equals_batch
from tests.spark.support.takeover import RHINO, SETTINGS, STOCK, Tool, advance, refused, remove_state, wait_until_over

pytestmark = [pytest.mark.spark, pytest.mark.timeout(420)]


@pytest.fixture(scope="module")
def spark(cluster: LocalCluster) -> Iterator[SparkSession]:
    session = cluster.session("takeover", SETTINGS | {PROVIDER_KEY: STOCK})
    yield session
    session.stop()


def test_a_query_goes_from_sparks_provider_to_rhino_and_back(
    cluster: LocalCluster, spark: SparkSession, tmp_path: Path
) -> None:
    tool, run = Tool(cluster), Run(spark, QUERIES["join4"], tmp_path)
    advance(run, STOCK, 6)
    before = _tree(run.checkpoint)
    would = tool("adopt", run.checkpoint, "--dry-run")
    assert _tree(run.checkpoint) == before
    done = tool("adopt", run.checkpoint)
    assert {**would, "dry_run": False, "backup": done["backup"]} == done
    assert done["stores"] == 2
    assert QueryCheckpoint(run.checkpoint).provider() == RHINO
    refused(tool, AlreadyThereError, "adopt", match="already", folder=run.checkpoint)
    remove_state(run.checkpoint / "state")
    spark.conf.set(PROVIDER_KEY, RHINO)
    running = run.start()
    run.advance(running, 4)
    refused(tool, ConflictError, "release", match="Stop the query first", folder=run.checkpoint)
    running.stop()
    wait_until_over(cluster, done["job"])
    back = tool("release", run.checkpoint)
    assert back["provider"] == QueryCheckpoint(run.checkpoint).provider() == STOCK
    advance(run, STOCK, 3)
    assert_equals_batch(run)


@pytest.mark.nightly
def test_transform_with_state_goes_through_the_checkpoint_location_and_back(
    cluster: LocalCluster, spark: SparkSession, tmp_path: Path
) -> None:
    tool, query = Tool(cluster), OPERATORS["transform-timers"]
    advance(Run(spark, query, tmp_path), STOCK, 4)
    done = tool("adopt", tmp_path / "checkpoint", "--integration", "checkpoint")
    assert (done["provider"], done["backup"]) == (STOCK, "")
    remove_state(tmp_path / "checkpoint" / "state")
    advance(Run(spark, query, tmp_path, rhino_checkpoint), STOCK, 3)
    wait_until_over(cluster, done["job"])
    tool("release", tmp_path / "checkpoint")
    plain = Run(spark, query, tmp_path)
    advance(plain, STOCK, 3)
    assert_equals_batch(plain)


@pytest.mark.nightly
def test_format_1_is_refused(cluster: LocalCluster, spark: SparkSession, tmp_path: Path) -> None:
    tool, run = Tool(cluster), Run(spark, QUERIES["aggregation"], tmp_path)
    spark.conf.set(FORMAT_KEY, "1")
    try:
        advance(run, STOCK, 1)
    finally:
        spark.conf.set(FORMAT_KEY, "2")
    refused(tool, PreconditionError, "adopt", match="format 1.*--to-format 2", folder=run.checkpoint)


def _tree(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}
