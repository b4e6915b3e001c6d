"""Every kind of stateful query through a handover, a killed executor and a restart: the output equals a batch's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from deploy.local import LocalCluster
from rhino.rpc.overview import JobView, fetch_overview
from spark_connector import HandoverClient
from spark_connector.rpc.client import Phase
from tests.spark.conftest import wait_for
from tests.spark.queries import QUERIES
from tests.spark.run import Run

pytestmark = [pytest.mark.spark, pytest.mark.timeout(420)]
PARTITIONS = 4


@pytest.fixture(scope="module")
def spark(cluster: LocalCluster) -> Iterator[SparkSession]:
    session = cluster.session("exactly-once", {"spark.sql.shuffle.partitions": str(PARTITIONS)})
    yield session
    session.stop()


def job(cluster: LocalCluster, name: str) -> JobView | None:
    return next((j for j in fetch_overview(cluster.manager).jobs if j.name == name and j.connected), None)


def hand_over_one(cluster: LocalCluster, name: str) -> None:
    """Moves one virtual node to another worker and waits until a logged batch confirms it."""

    def settled() -> bool:
        view = job(cluster, name)
        nodes = view.virtual_nodes if view else ()
        return len(nodes) >= PARTITIONS and all(n.desired_worker and n.holders for n in nodes)

    wait_for(settled, f"{name}: every virtual node has a worker")
    view = job(cluster, name)
    assert view is not None
    node = view.virtual_nodes[0]
    workers = sorted(w.worker_id for w in fetch_overview(cluster.manager).workers if w.state == "live")
    target = next(w for w in workers if w != node.desired_worker)
    with HandoverClient(cluster.manager) as client:
        started = client.start(name, [node.virtual_node], target, deadline_s=90)
        ended = client.wait(started.handover_id, timeout_s=100)
    assert ended.phase is Phase.CONFIRMED, ended.reason
    after = job(cluster, name)
    assert after is not None
    moved = next(n for n in after.virtual_nodes if n.virtual_node == node.virtual_node)
    assert moved.desired_worker == target


@pytest.mark.parametrize("name", list(QUERIES))
def test_output_equals_a_batch_computation(
    name: str, cluster: LocalCluster, spark: SparkSession, tmp_path: Path
) -> None:
    run = Run(spark, QUERIES[name], tmp_path)
    running = run.start()
    run.advance(running, 4)
    hand_over_one(cluster, name)
    run.advance(running, 1)
    cluster.kill_executor(list(QUERIES).index(name) % 3)
    run.advance(running, 3)
    running.stop()
    running = run.start()
    run.advance(running, 3)
    running.stop()
    run.assert_exact()
