"""Handovers in the middle of a query with stateful operators in two stages, and of two queries at the same time.

Two operators in one stage, and joins with one and with four stores, are in test_exactly_once.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from rhino.client.overview import JobView
from rhino.testing import LocalCluster
from tests.spark.operators import OPERATORS
from tests.spark.queries import QUERIES
from tests.spark.run import Run, assert_equals_batch, hand_over, placed

pytestmark = [pytest.mark.spark, pytest.mark.nightly, pytest.mark.timeout(420)]
PARTITIONS = 4


@pytest.fixture(scope="module")
def spark(cluster: LocalCluster) -> Iterator[SparkSession]:
    session = cluster.session("many operators", {"spark.sql.shuffle.partitions": str(PARTITIONS)})
    yield session
    session.stop()


def task_groups(view: JobView) -> set[str]:
    return {node.virtual_node.split("/")[0] for node in view.virtual_nodes}


def test_operators_in_two_stages_move_one_without_the_other(
    cluster: LocalCluster, spark: SparkSession, tmp_path: Path
) -> None:
    run = Run(spark, OPERATORS["chained"], tmp_path)
    running = run.start()
    run.advance(running, 4)
    view = placed(cluster, "chained", 2 * PARTITIONS)
    assert len(task_groups(view)) == 2
    for name in sorted(task_groups(view)):
        hand_over(cluster, "chained", next(n for n in view.virtual_nodes if n.virtual_node == f"{name}/1"))
        run.advance(running, 2)
    cluster.kill_executor(1)
    run.advance(running, 4)
    running.stop()
    assert_equals_batch(run)


def test_two_queries_are_handed_over_at_the_same_time(
    cluster: LocalCluster, spark: SparkSession, tmp_path: Path
) -> None:
    runs = [Run(spark, QUERIES[name], tmp_path / name) for name in ("distinct", "join2")]
    started = [run.start() for run in runs]
    for run, running in zip(runs, started, strict=True):
        run.advance(running, 3)
    views = [placed(cluster, run.query.name, PARTITIONS) for run in runs]
    with ThreadPoolExecutor(len(runs)) as pool:
        moves = [
            pool.submit(hand_over, cluster, run.query.name, view.virtual_nodes[0])
            for run, view in zip(runs, views, strict=True)
        ]
    for move in moves:
        move.result()
    for run, running in zip(runs, started, strict=True):
        run.advance(running, 3)
    for running in started:
        running.stop()
    for run in runs:
        assert_equals_batch(run)
