"""`rhino adopt` and `rhino release` on real checkpoints: a query goes from Spark's provider to Rhino and back."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from rhino import rhino_checkpoint
from rhino.cli.main import app
from rhino.client.overview import fetch_overview
from rhino.testing import LocalCluster
from rhino_core.errors import AlreadyThereError, ConflictError, PreconditionError, RhinoError
from spark_connector.conf import PROVIDER_CLASSES
from spark_connector.query_checkpoint import FORMAT_KEY, PROVIDER_KEY, QueryCheckpoint
from tests.spark.conftest import wait_for
from tests.spark.operators import OPERATORS
from tests.spark.queries import QUERIES
from tests.spark.run import Run, assert_equals_batch

pytestmark = [pytest.mark.spark, pytest.mark.timeout(420)]
STOCK, RHINO = PROVIDER_CLASSES["checkpoint"], PROVIDER_CLASSES["provider"]
SETTINGS = {
    "spark.sql.shuffle.partitions": "2",
    # Snapshots and changelogs both are taken over.
    "spark.sql.streaming.stateStore.minDeltasForSnapshot": "3",
    "spark.sql.streaming.stateStore.maintenanceInterval": "500ms",
}
QUIET_S = 2.0  # several maintenance intervals


class Tool:
    """The command, on the node of worker 0."""

    def __init__(self, cluster: LocalCluster) -> None:
        self._socket = cluster.socket.replace("{host}", cluster.workers[0].host)

    def __call__(self, command: str, checkpoint: Path, *options: str) -> dict[str, object]:
        arguments = [command, str(checkpoint), "--socket", self._socket, "--idle-s", "0", "--json", *options]
        arguments += ["--yes"] if command == "release" else []
        result = CliRunner().invoke(app, arguments)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        outcome: dict[str, object] = json.loads(result.stdout)
        return outcome


def advance(run: Run, provider: str, batches: int) -> None:
    run.spark.conf.set(PROVIDER_KEY, provider)
    running = run.start()
    run.advance(running, batches)
    running.stop()
    wait_for(partial(_is_quiet, run.checkpoint), "end of the uploads of Spark's maintenance")


def _is_quiet(checkpoint: Path) -> bool:
    """Whether nothing has changed for some time: maintenance uploads snapshots after a query has stopped, too."""
    try:
        changed = max(path.lstat().st_mtime for path in checkpoint.rglob("*"))
    except FileNotFoundError:  # deleted meanwhile
        return False
    return time.time() - changed > QUIET_S


def refused(tool: Tool, kind: type[RhinoError], *arguments: str, match: str, folder: Path) -> None:
    with pytest.raises(kind, match=match):
        tool(arguments[0], folder, *arguments[1:])


@pytest.fixture(scope="module")
def spark(cluster: LocalCluster) -> Iterator[SparkSession]:
    session = cluster.session("takeover", SETTINGS | {PROVIDER_KEY: STOCK})
    yield session
    session.stop()


def remove_state(folder: Path) -> None:
    """The files that were taken over: none of them may be needed from then on."""
    gone = [p for p in folder.rglob("*") if p.suffix in {".changelog", ".zip", ".sst", ".log"}]
    assert gone
    for path in gone:
        path.unlink()


def wait_until_over(cluster: LocalCluster, job: object) -> None:
    """The manager has heard of the query's end."""
    jobs = partial(fetch_overview, cluster.manager)
    wait_for(lambda: not any(known.job == job and known.connected for known in jobs().jobs), f"end of job {job}")


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
