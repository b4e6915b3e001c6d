"""All copies of the newest versions are lost: the query fails, is taken back, goes on, and its output is a batch's."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from rhino.client.overview import fetch_overview
from rhino.testing import LocalCluster
from rhino_core.ids import parse_name
from tests.spark.conftest import SharedSession, wait_for
from tests.spark.queries import QUERIES
from tests.spark.run import Run, assert_equals_batch
from tests.spark.support.takeover import wait_until_over

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]
SETTINGS = {
    "spark.sql.shuffle.partitions": "2",
    # Executors outlive the loss here: one could upload a snapshot of a lost version after it, and that would be held.
    "spark.sql.streaming.stateStore.minDeltasForSnapshot": "1000",
}


@pytest.fixture
def spark(shared: SharedSession) -> Iterator[SparkSession]:
    with shared.with_settings(SETTINGS) as session:
        yield session


def rewind(cluster: LocalCluster, run: Run, *options: str) -> subprocess.CompletedProcess[str]:
    command = [
        sys.executable,
        "-m",
        "rhino.cli.main",
        "rewind",
        str(run.checkpoint),
        "--yes",
        "--manager",
        cluster.manager,
    ]
    return subprocess.run([*command, *options], capture_output=True, text=True, timeout=60, check=False)


def lose_versions_above(cluster: LocalCluster, job: str, newest: int) -> int:
    """As a power loss of all workers would; returns how many files are gone."""
    for worker in cluster.workers:
        assert worker.sidecar is not None
        worker.sidecar.kill()
    files = [path for worker in cluster.workers for path in (worker.folder / "rhino").glob(f"store/{job}/*/*/*/*_*.*")]
    versions = {path: parse_name(path.name).version for path in files}
    lost = [path for path, version in versions.items() if version is not None and version.version > newest]
    for path in lost:
        path.unlink()
    for index in range(len(cluster.workers)):
        cluster.restart_sidecar(index)
    return len(lost)


def all_live(cluster: LocalCluster) -> bool:
    return all(worker.state == "live" for worker in fetch_overview(cluster.manager).workers)


@pytest.mark.nightly
def test_a_query_goes_on_from_the_newest_batch_that_is_held(
    cluster: LocalCluster, spark: SparkSession, tmp_path: Path
) -> None:
    run = Run(spark, QUERIES["join2"], tmp_path)
    running = run.start()
    run.advance(running, 5)
    refused = rewind(cluster, run, "--no-file-sink")
    assert (refused.returncode, "Stop the query first" in refused.stderr) == (3, True), refused.stderr
    assert "forget" not in refused.stderr
    running.stop()
    newest = run.logged() - 1
    kept = newest - 3
    job = json.loads((run.checkpoint / "metadata").read_text())["id"]
    planned = {p.name: p.read_bytes() for p in (run.checkpoint / "offsets").glob("[0-9]*")}
    assert lose_versions_above(cluster, job, kept + 1) > 0
    wait_for(lambda: all_live(cluster), "all workers live")

    running = run.start()
    wait_for(lambda: not running.isActive, "the query has ended")
    assert "no worker holds it" in str(running.exception())
    wait_until_over(cluster, job)

    dry = rewind(cluster, run, "--dry-run", "--json")
    assert dry.returncode == 0, dry.stderr
    plan = json.loads(dry.stdout)
    assert (plan["newest_batch"], plan["batch"], plan["replayed_batch"]) == (newest, kept, kept + 1)
    assert run.logged() == newest + 1
    assert rewind(cluster, run).returncode == 2  # the sink must be named
    done = rewind(cluster, run, "--no-file-sink", "--json")
    assert done.returncode == 0, done.stderr
    assert Path(json.loads(done.stdout)["backup"], "commits", str(newest)).exists()
    assert run.logged() == kept + 1

    running = run.start()
    run.advance(running, 6)
    running.stop()
    wait_until_over(cluster, job)
    assert (run.checkpoint / "offsets" / str(kept + 1)).read_bytes() == planned[str(kept + 1)]
    batches = run.logged()
    assert batches > newest
    assert_equals_batch(run)
    again = rewind(cluster, run, "--no-file-sink", "--json")
    assert again.returncode == 0, again.stderr
    assert not json.loads(again.stdout)["needed"]
