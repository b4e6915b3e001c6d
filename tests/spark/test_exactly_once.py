"""Every kind of stateful query through a handover, a killed executor and a restart: the output equals a batch's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from rhino.client.overview import fetch_overview
from rhino.testing import LocalCluster
from tests.spark.conftest import SharedSession
from tests.spark.queries import QUERIES
from tests.spark.run import Run, assert_equals_batch, hand_over_one, job

pytestmark = [pytest.mark.spark, pytest.mark.timeout(420)]
PARTITIONS = 4
# Task groups, and operators: what one task runs moves together. The joins of the union have tasks of their own.
SHAPES = {"distinct": (1, 2), "union": (2, 2)}
# The two that differ most: state in two stages, and a join with state of both sides.
EACH_TIME = ("join2",)
NAMES = [pytest.param(name, marks=() if name in EACH_TIME else pytest.mark.nightly) for name in QUERIES]


@pytest.fixture
def spark(shared: SharedSession) -> Iterator[SparkSession]:
    with shared.with_settings({"spark.sql.shuffle.partitions": str(PARTITIONS)}) as session:
        yield session


@pytest.mark.parametrize("name", NAMES)
def test_output_equals_a_batch_computation(
    name: str, cluster: LocalCluster, spark: SparkSession, tmp_path: Path
) -> None:
    run = Run(spark, QUERIES[name], tmp_path)
    running = run.start()
    run.advance(running, 4)
    hand_over_one(cluster, name, PARTITIONS)
    task_groups, operators = SHAPES.get(name, (1, 1))
    view = job(cluster, name)
    assert view is not None
    assert len(view.virtual_nodes) == PARTITIONS * task_groups
    groups = [g for g in fetch_overview(cluster.manager).groups if g.group.job == view.job]
    assert len(groups) == PARTITIONS * operators
    run.advance(running, 1)
    cluster.kill_executor(list(QUERIES).index(name) % 3)
    run.advance(running, 3)
    running.stop()
    running = run.start()
    run.advance(running, 3)
    running.stop()
    assert_equals_batch(run)
