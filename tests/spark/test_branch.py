"""Branches of running queries: other code on the same state, both outputs exact, and either goes on alone."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from query_evolution import Canary, Modifications, branch
from rhino import HandoverClient, rhino_checkpoint
from rhino.testing import LocalCluster
from spark_connector.conf import SPARK_PROVIDER, STREAMING
from tests.spark.conftest import SharedSession, wait_for
from tests.spark.modified import SCORED, functions, scored_batch
from tests.spark.run import Run, assert_same_rows, job

pytestmark = [pytest.mark.spark, pytest.mark.timeout(420)]
SETTINGS = {
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.streaming.minBatchesToRetain": "2",  # floors follow the newest batch closely
}


@pytest.fixture
def spark(shared: SharedSession) -> Iterator[SparkSession]:
    with shared.with_settings(SETTINGS) as session:
        yield session


def modify(run: Run, function: str, used: dict[int, str]) -> None:
    changes = Modifications(run.checkpoint)
    number = changes.replace_function("score", functions()[function]).record.number
    view = changes.wait(number)
    assert view.state == "in_force", view.reason
    used[number] = function


def check(run: Run, used: dict[int, str]) -> None:
    batches = run.logged()
    views = Modifications(run.checkpoint).list()
    assert_same_rows(run.result(batches), scored_batch(run.spark, batches, views, used))


def assert_differs(run: Run, spark: SparkSession) -> None:
    """The output differs from what the query computes without modifications."""
    batches = run.logged()
    with pytest.raises(AssertionError, match="rows missing"):
        assert_same_rows(run.result(batches), scored_batch(spark, batches, [], {}))


def branched(
    run: Run, cluster: LocalCluster, folder: Path, locate: Callable[[Path], str] = str, batch: int | None = None
) -> Run:
    """A branch of a query after its newest batch, or this one. It has the output so far, as its user would copy it."""
    made = branch(cluster.manager, run.checkpoint, folder / "checkpoint", batch=batch)
    for written in range(made.batch + 1):
        shutil.copytree(run.output / str(written), folder / "output" / str(written))
    shadow = Run(run.spark, replace(SCORED, name="shadow"), folder, locate)
    assert shadow.logged() == made.batch + 1
    assert made.linked_bytes > 0
    return shadow


@pytest.mark.nightly
def test_a_branch_of_a_running_query_goes_its_own_way(
    cluster: LocalCluster, spark: SparkSession, tmp_path: Path
) -> None:
    run = Run(spark, SCORED, tmp_path / "live")
    running = run.start()
    run.advance(running, 2)
    of_live: dict[int, str] = {}
    modify(run, "triple", of_live)
    run.advance(running, 1)
    shadow = branched(run, cluster, tmp_path / "shadow")
    of_shadow = dict(of_live)
    shadowing = shadow.start()
    shadow.advance(shadowing, 2)
    assert shadowing.id != running.id
    modify(shadow, "minus", of_shadow)
    shadow.advance(shadowing, 3)
    run.advance(running, 3)
    live, other = job(cluster, SCORED.name), job(cluster, "shadow")
    assert live is not None
    assert other is not None
    assert (live.job, other.job) == (str(running.id), str(shadowing.id))

    # ---- the live one ends for good, and the branch goes on
    running.stop()
    check(run, of_live)
    wait_for(lambda: job(cluster, SCORED.name) is None, "the driver has reported the end")
    with HandoverClient(cluster.manager) as client:
        client.forget_job(live.job, now=True)
    shadow.advance(shadowing, 2)
    shadowing.stop()
    shadowing = shadow.start()
    shadow.advance(shadowing, 2)
    shadowing.stop()
    check(shadow, of_shadow)


@pytest.mark.nightly
def test_a_branch_at_the_batch_before_a_canary_goes_on_as_if_it_had_never_been(
    cluster: LocalCluster, shared: SharedSession, tmp_path: Path
) -> None:
    with shared.with_settings(SETTINGS | {"spark.sql.streaming.minBatchesToRetain": "10"}) as spark:
        run = Run(spark, SCORED, tmp_path / "live")
        running = run.start()
        run.advance(running, 3)
        changes = Modifications(run.checkpoint)
        number = changes.replace_function("score", functions()["minus"], canary=Canary(3)).record.number
        tried = changes.wait(number)
        assert (tried.state, len(tried.figures)) == ("in_force", 3), tried.reason
        assert changes.wait(changes.remove("function", "score").record.number).state == "in_force"
        first = tried.first_batch
        assert first is not None
        running.stop()
        assert_differs(run, spark)

        before = branched(run, cluster, tmp_path / "before", batch=first - 1)
        going = before.start()
        before.advance(going, 5)
        going.stop()
        assert Modifications(before.checkpoint).list() == ()
        check(before, {})


@pytest.mark.nightly
def test_a_branch_on_rhino_of_a_query_on_rhino(cluster: LocalCluster, shared: SharedSession, tmp_path: Path) -> None:
    provider = {f"{STREAMING}.stateStore.providerClass": SPARK_PROVIDER}
    with shared.with_settings(SETTINGS | provider) as spark:
        run = Run(spark, SCORED, tmp_path / "live", rhino_checkpoint)
        running = run.start()
        run.advance(running, 3)
        shadow = branched(run, cluster, tmp_path / "shadow", rhino_checkpoint)
        shadowing = shadow.start()
        shadow.advance(shadowing, 3)
        shadowing.stop()
        with HandoverClient(cluster.manager) as client:
            wait_for(lambda: job(cluster, "shadow") is None, "the driver has reported the end")
            client.forget_job(str(shadowing.id), now=True)
        run.advance(running, 2)
        running.stop()
        check(shadow, {})
        running = run.start()
        run.advance(running, 1)
        running.stop()
        check(run, {})
