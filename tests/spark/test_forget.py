"""A query that was forgotten by mistake: refused by name, taken back, and goes on with all its state."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql.streaming.query import StreamingQuery

from rhino import ForgottenJob, HandoverClient
from rhino.client.overview import fetch_overview
from rhino.testing import LocalCluster
from rhino_core.errors import PreconditionError
from tests.spark.conftest import wait_for
from tests.spark.queries import QUERIES
from tests.spark.run import Run, assert_equals_batch

pytestmark = [pytest.mark.spark, pytest.mark.nightly, pytest.mark.timeout(600)]


def forget(client: HandoverClient, job: str) -> ForgottenJob:
    """As soon as its driver has reported the end, and the manager has settled. `job`: an id, for other queries of the
    cluster have the same name.
    """
    done: list[ForgottenJob] = []

    def forgotten() -> bool:
        try:
            done.append(client.forget_job(job))
        except PreconditionError:
            return False
        return True

    wait_for(forgotten, f"{job} is forgotten")
    return done[0]


def error_of(running: StreamingQuery) -> str:
    """The error with which the query ends."""
    wait_for(lambda: not running.isActive, "the query ends")
    return str(running.exception())


def test_a_forgotten_query_is_refused_and_goes_on_once_it_is_taken_back(cluster: LocalCluster, tmp_path: Path) -> None:
    spark = cluster.session("forget", {"spark.sql.shuffle.partitions": "2"})
    try:
        run = Run(spark, QUERIES["aggregation"], tmp_path)
        running = run.start()
        run.advance(running, 2)
        running.stop()
        with HandoverClient(cluster.manager) as client:
            done = forget(client, str(running.id))
            assert (done.groups > 0, done.left_s) == (True, 24 * 3600.0)
            error = error_of(run.start())
            assert f"job {done.job} ({run.query.name}) was forgotten at " in error
            assert f"`rhino forget --job {done.job} --undo`" in error
            assert client.undo_forget_job(done.job) == done.job
        running = run.start()
        run.advance(running, 2)
        running.stop()
        assert_equals_batch(run)
        (known,) = [job for job in fetch_overview(cluster.manager).jobs if job.job == done.job]
        assert (known.delete_in_s, known.batch_id) == (None, run.logged() - 1)
    finally:
        spark.stop()
