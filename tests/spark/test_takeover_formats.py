"""`rhino adopt --to-format 2`: queries of checkpoint format 1 and of the HDFS-backed provider, to Rhino and back."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from rhino import rhino_checkpoint
from rhino.testing import LocalCluster
from rhino_core.errors import PreconditionError
from spark_connector.query_checkpoint import FORMAT_KEY, PROVIDER_KEY, QueryCheckpoint
from spark_connector.takeover.files import CHANGELOGS_KEY
from spark_connector.takeover.hdfs_state import HDFS_PROVIDER
from tests.spark.operators import OPERATORS
from tests.spark.queries import QUERIES
from tests.spark.run import Run, assert_equals_batch
from tests.spark.support.takeover import RHINO, SETTINGS, STOCK, Tool, advance, refused, remove_state, wait_until_over

pytestmark = [pytest.mark.spark, pytest.mark.nightly, pytest.mark.timeout(600)]
FORMER = {  # provider, and whether it writes changelogs
    "changelogs": (STOCK, "true"),
    "snapshots": (STOCK, "false"),
    "hdfs": (HDFS_PROVIDER, "false"),
}
FOUND = {"changelogs": "RocksDB, format 1", "snapshots": "RocksDB, format 1", "hdfs": "HDFS-backed"}
MATRIX = [
    ("hdfs", "join2"),  # tests/first_hour adopts one of RocksDB
    *[
        pytest.param(kind, query, marks=pytest.mark.nightly)
        for kind, query in [
            ("changelogs", "join4"),
            ("snapshots", "aggregation"),
            ("snapshots", "join2"),
            ("changelogs", "distinct"),
            ("changelogs", "sessions"),
            ("hdfs", "distinct"),
            ("hdfs", "sessions"),
            ("hdfs", "apply-in-pandas"),
        ]
    ],
]
# What docs/operate/adopt-and-release.md says.
WAY_BACK = "cd {0} && rm -rf offsets commits rhino-adopt.json && cp -a {1}/offsets {1}/commits ."


@pytest.fixture(scope="module")
def spark(cluster: LocalCluster) -> Iterator[SparkSession]:
    session = cluster.session("formats", SETTINGS | {PROVIDER_KEY: STOCK})
    yield session
    session.stop()


def advance_formerly(run: Run, kind: str, batches: int) -> None:
    """Runs some batches as Spark's former defaults do."""
    provider, changelogs = FORMER[kind]
    usual = {key: run.spark.conf.get(key) for key in (FORMAT_KEY, CHANGELOGS_KEY)}
    run.spark.conf.set(FORMAT_KEY, "1")
    run.spark.conf.set(CHANGELOGS_KEY, changelogs)
    try:
        advance(run, provider, batches)
    finally:
        for key, value in usual.items():
            run.spark.conf.set(key, value)


def tree(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


@pytest.mark.parametrize(("kind", "query"), MATRIX)
def test_a_query_of_a_former_format_goes_to_rhino_and_back(
    kind: str, query: str, cluster: LocalCluster, spark: SparkSession, tmp_path: Path
) -> None:
    tool, run = Tool(cluster), Run(spark, (OPERATORS | QUERIES)[query], tmp_path)
    advance_formerly(run, kind, 5)
    before = tree(run.checkpoint)
    refused(tool, PreconditionError, "adopt", match="--to-format 2", folder=run.checkpoint)
    would = tool("adopt", run.checkpoint, "--to-format", "2", "--dry-run")
    assert would["found"] == FOUND[kind]
    assert tree(run.checkpoint) == before

    done = tool("adopt", run.checkpoint, "--to-format", "2")
    assert (done["stores"], QueryCheckpoint(run.checkpoint).provider()) == (would["stores"], RHINO)
    after = tree(run.checkpoint)
    changed = {name.split("/")[0] for name in before if after.get(name) != before[name]}
    assert changed <= {"offsets", "commits"}

    subprocess.run(WAY_BACK.format(run.checkpoint, done["backup"]), shell=True, check=True)
    advance_formerly(run, kind, 2)

    tool("adopt", run.checkpoint, "--to-format", "2")
    advance(run, RHINO, 5)
    wait_until_over(cluster, done["job"])
    assert_equals_batch(run)

    tool("release", run.checkpoint)
    advance(run, STOCK, 4)
    assert_equals_batch(run)


def test_transform_with_state_of_format_1_goes_through_the_checkpoint_location(
    cluster: LocalCluster, spark: SparkSession, tmp_path: Path
) -> None:
    tool, query = Tool(cluster), OPERATORS["transform-timers"]
    advance_formerly(Run(spark, query, tmp_path), "changelogs", 5)
    done = tool("adopt", tmp_path / "checkpoint", "--to-format", "2", "--integration", "checkpoint")
    assert (done["found"], done["provider"]) == ("RocksDB, format 1", STOCK)
    remove_state(tmp_path / "checkpoint" / "state")
    advance(Run(spark, query, tmp_path, rhino_checkpoint), STOCK, 4)
    wait_until_over(cluster, done["job"])
    tool("release", tmp_path / "checkpoint")
    plain = Run(spark, query, tmp_path)
    advance(plain, STOCK, 3)
    assert_equals_batch(plain)
