"""All workers, their disks and the manager are lost. A new cluster goes on from the archive; the output is exact."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from typer.testing import CliRunner

from rhino.cli.main import app
from rhino.client.handover_client import HandoverClient
from rhino.testing import ClusterShape, LocalCluster
from rhino_model.archives import ArchivedQuery
from spark_connector.query_checkpoint import QueryCheckpoint
from tests.spark.conftest import wait_for
from tests.spark.queries import QUERIES
from tests.spark.run import Run, assert_equals_batch, assert_same_rows
from tests.spark.support.takeover import STOCK, Tool, advance, remove_state, wait_until_over

pytestmark = [pytest.mark.spark, pytest.mark.timeout(420)]
SETTINGS = {
    "spark.sql.shuffle.partitions": "2",
    # Snapshots and changelogs both are archived.
    "spark.sql.streaming.stateStore.minDeltasForSnapshot": "3",
    "spark.sql.streaming.stateStore.maintenanceInterval": "500ms",
}


@contextmanager
def new_cluster(folder: Path, archive: Path) -> Iterator[tuple[LocalCluster, SparkSession]]:
    """Its disks are deleted at the end."""
    options = ("--archive", str(archive), "--archive-every-s", "1")
    with LocalCluster(folder, workers=2, shape=ClusterShape(manager_options=options)) as cluster:
        yield cluster, cluster.session("archive", SETTINGS)
    shutil.rmtree(folder)


def rhino(*arguments: str) -> str:
    result = CliRunner().invoke(app, arguments)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.stdout


def archived(cluster: LocalCluster) -> ArchivedQuery:
    with HandoverClient(cluster.manager) as client:
        (found,) = client.archive().queries
    return found


def go_on(cluster: LocalCluster, run: Run, batches: int) -> None:
    """Runs some batches, stops the query, and puts the last batch into the archive."""
    running = run.start()
    run.advance(running, batches)
    wait_for(lambda: archived(cluster).batch_id >= 0, "a batch in the archive while the query runs")
    running.stop()
    rhino("archive", "now", "--wait", "--manager", cluster.manager)
    done = archived(cluster)
    assert (done.batch_id, done.whole, done.error) == (run.logged() - 1, True, "")


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Its clusters have one key: this process keeps its certificates."""
    rhino("cert", "key", str(tmp_path / "cluster.key"))
    monkeypatch.setenv("RHINO_CLUSTER_KEY", str(tmp_path / "cluster.key"))
    folder = tmp_path / "archive"
    folder.mkdir()
    return folder


def test_a_query_survives_the_loss_of_all_workers_and_disks(archive: Path, tmp_path: Path) -> None:
    with new_cluster(tmp_path / "first", archive) as (cluster, spark):
        run = Run(spark, QUERIES["join4"], tmp_path)
        go_on(cluster, run, 4)
    job = QueryCheckpoint(run.checkpoint).job
    with new_cluster(tmp_path / "second", archive) as (cluster, spark):
        run = Run(spark, QUERIES["join4"], tmp_path)
        running = run.start()
        run.advance(running, 2)
        wait_for(lambda: "another cluster" in archived(cluster).error, "the archive is the first cluster's")
        rhino("archive", "claim", "--job", job, "--yes", "--manager", cluster.manager)
        wait_for(lambda: archived(cluster).batch_id > 4, "the second cluster archives")
        running.stop()
        assert_equals_batch(run)


@pytest.mark.nightly
def test_it_goes_back_to_the_archived_batch_when_later_ones_are_lost(archive: Path, tmp_path: Path) -> None:
    with new_cluster(tmp_path / "first", archive) as (cluster, spark):
        run = Run(spark, QUERIES["join4"], tmp_path)
        go_on(cluster, run, 4)
        kept = run.logged() - 1
        away = archive.rename(tmp_path / "away")
        running = run.start()
        run.advance(running, 3)
        running.stop()
        away.rename(archive)
    with new_cluster(tmp_path / "second", archive) as (cluster, spark):
        run = Run(spark, QUERIES["join4"], tmp_path)
        running = run.start()
        wait_for(lambda: not running.isActive, "the query has ended")
        assert f"in the archive is {kept}: `rhino rewind` goes to it" in str(running.exception())
        wait_until_over(cluster, QueryCheckpoint(run.checkpoint).job)
        arguments = ("rewind", str(run.checkpoint), "--no-file-sink", "--yes", "--json", "--manager", cluster.manager)
        assert json.loads(rhino(*arguments))["batch"] == kept
        running = run.start()
        run.advance(running, 4)
        running.stop()
        assert_equals_batch(run)


@pytest.mark.nightly
def test_it_survives_the_loss_of_its_checkpoint_too_and_goes_on_without_rhino(archive: Path, tmp_path: Path) -> None:
    with new_cluster(tmp_path / "first", archive) as (cluster, spark):
        run = Run(spark, QUERIES["join4"], tmp_path)
        go_on(cluster, run, 6)
    job, exported = QueryCheckpoint(run.checkpoint).job, tmp_path / "exported"
    shutil.rmtree(run.checkpoint)
    verified = json.loads(rhino("archive", "verify", "--archive", str(archive), "--json"))
    assert verified["queries"][job]["problems"] == []
    rhino("archive", "export", "--job", job, "--to", str(exported), "--archive", str(archive))
    with new_cluster(tmp_path / "second", archive) as (cluster, spark):
        rhino("archive", "restore", "--job", job, "--to", str(run.checkpoint), "--yes", "--manager", cluster.manager)
        run = Run(spark, QUERIES["join4"], tmp_path)
        go_on(cluster, run, 3)
        assert_equals_batch(run)
        batches = run.logged()

    # Spark goes on with the export of the batch before these, without Rhino.
    shutil.rmtree(run.checkpoint)
    exported.rename(run.checkpoint)
    with LocalCluster(tmp_path / "stock", workers=2, rhino=False) as cluster:
        run = Run(cluster.session("stock", SETTINGS), QUERIES["join4"], tmp_path)
        advance(run, STOCK, 4)
        assert run.logged() > batches
        assert_equals_batch(run)


def state(spark: SparkSession, checkpoint: Path) -> DataFrame:
    """By Spark's state reader: rows of the query "aggregation"."""
    rows = spark.read.format("statestore").load(str(checkpoint))
    return rows.selectExpr("key.k", "value.count as n", "value.sum as s", "value.max as m")


# The parts are in tests of CI: an export above, an adoption in test_takeover.py.
@pytest.mark.nightly
def test_an_older_batch_can_be_read_and_becomes_a_new_query(archive: Path, tmp_path: Path) -> None:
    with new_cluster(tmp_path / "cluster", archive) as (cluster, spark):
        run = Run(spark, QUERIES["aggregation"], tmp_path)
        go_on(cluster, run, 5)
        older = run.logged() - 1
        go_on(cluster, run, 4)
        newest, job = run.logged() - 1, QueryCheckpoint(run.checkpoint).job

        # Time travel: Spark's own state reader.
        for batch in (older, newest):
            to, number = tmp_path / f"batch-{batch}", str(batch)
            rhino("archive", "export", "--job", job, "--batch", number, "--to", str(to), "--archive", str(archive))
            assert_same_rows(state(spark, to), run.query.batch(spark, batch + 1))
            assert QueryCheckpoint(to).job == job

        # Staging: another query goes on after the older batch, and the archived one after its newest.
        staged = Run(spark, run.query, tmp_path / "staged")
        to, number = str(staged.checkpoint), str(older)
        options = ("--batch", number, "--to", to, "--as-new-query", "--manager", cluster.manager, "--json")
        made = json.loads(rhino("archive", "export", "--job", job, *options))
        assert (made["source_job"], made["job"]) == (job, QueryCheckpoint(staged.checkpoint).job)
        assert made["job"] != job
        assert staged.logged() == older + 1
        for batch in range(staged.logged()):  # the rows of former batches are compared, too
            shutil.copytree(run.output / str(batch), staged.output / str(batch))
        assert Tool(cluster)("adopt", staged.checkpoint)["job"] == made["job"]
        remove_state(staged.checkpoint)
        for one in (staged, run):
            running = one.start()
            one.advance(running, 3)
            running.stop()
            assert_equals_batch(one)
