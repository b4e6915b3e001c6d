"""`rhino handover rebalance --by rows` on a running query with skewed keys, and what drivers tell of virtual nodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from typer.testing import CliRunner

from rhino import HandoverClient, Phase
from rhino.cli.main import app
from rhino.client.overview import VirtualNodeView
from rhino.testing import LocalCluster
from tests.spark.conftest import wait_for
from tests.spark.operators import OPERATORS
from tests.spark.queries import QUERIES, StatefulQuery, consumed, source
from tests.spark.run import Run, assert_equals_batch, job, placed

pytestmark = [pytest.mark.spark, pytest.mark.nightly, pytest.mark.timeout(300)]
PARTITIONS = 6
KEYS = 3000


@pytest.fixture(scope="module")
def spark(cluster: LocalCluster) -> Iterator[SparkSession]:
    session = cluster.session("rebalance", {"spark.sql.shuffle.partitions": str(PARTITIONS)})
    yield session
    session.stop()


def partition_of(key: str) -> Column:
    return F.pmod(F.hash(key), F.lit(PARTITIONS))


def skewed(rows: DataFrame) -> DataFrame:
    """Partitions 0 and 1 have sixteen times as many keys as the others."""
    keys = rows.select("value", (F.col("value") % KEYS).alias("k"))
    kept = keys.where((partition_of("k") < 2) | (F.col("k") % 16 == 0))
    return kept.groupBy("k").agg(F.count("*").alias("n"), F.max("value").alias("m"))


SKEWED = StatefulQuery(
    "skewed", "update", lambda s: skewed(source(s).select("value")), lambda s, n: skewed(consumed(s, n)), "k"
)


def nodes(cluster: LocalCluster, name: str) -> dict[str, VirtualNodeView]:
    view = job(cluster, name)
    return {node.virtual_node: node for node in view.virtual_nodes} if view else {}


def rows_told(cluster: LocalCluster, name: str) -> list[int | None]:
    return [node.rows for _, node in sorted(nodes(cluster, name).items())]


def test_rows_decide_where_virtual_nodes_go(cluster: LocalCluster, spark: SparkSession, tmp_path: Path) -> None:
    run = Run(spark, SKEWED, tmp_path)
    running = run.start()
    run.advance(running, 6)  # all keys have come
    keys = SKEWED.batch(spark, 6).select(partition_of("k").alias("p")).groupBy("p").count().collect()
    expected = [dict(map(tuple, keys))[partition] for partition in range(PARTITIONS)]
    wait_for(lambda: rows_told(cluster, "skewed") == expected, f"rows by partition: {expected}")
    placed(cluster, "skewed", PARTITIONS)
    before = nodes(cluster, "skewed")
    assert all(node.task_s and 0 < node.task_s < 30 for node in before.values())
    heavy = before["0/0"].desired_worker
    if before["0/1"].desired_worker != heavy:
        with HandoverClient(cluster.manager) as client:
            together = client.start("skewed", ["0/1"], heavy, deadline_s=90)
            assert client.wait(together.handover_id, timeout_s=100).phase is Phase.CONFIRMED
    arguments = ["handover", "rebalance", "--job", "skewed", "--by", "rows", "--wait", "--manager", cluster.manager]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    after = nodes(cluster, "skewed")
    loads = Counter[str]()
    for name, node in after.items():
        loads[node.desired_worker] += expected[int(name.split("/")[1])]
    assert max(loads.values()) == max(expected), "a heavy one is alone: there is nothing better"
    run.advance(running, 2)
    running.stop()
    assert_equals_batch(run)


@pytest.mark.parametrize("name", ["union", "chained", "join2"])
def test_the_rows_of_all_virtual_nodes_are_those_of_the_query(
    name: str, cluster: LocalCluster, spark: SparkSession, tmp_path: Path
) -> None:
    """Whatever shares a stage or a task. Spark's progress has the sums."""
    query = QUERIES.get(name) or OPERATORS[name]
    run = Run(spark, query, tmp_path)
    running = run.start()
    run.advance(running, 4)

    def told() -> bool:
        rows = rows_told(cluster, query.name)
        if not rows or None in rows:
            return False
        progress = [sum(o.numRowsTotal for o in p.stateOperators) for p in running.recentProgress]
        return sum(row or 0 for row in rows) in progress[1:]

    wait_for(told, "every virtual node's rows, of one batch", timeout_s=40)
    running.stop()
