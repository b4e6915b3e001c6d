"""Copies go where the load is low when that of their owner is high (`rhino manager --copies-by load`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from rhino import HandoverClient
from rhino.testing import ClusterShape, LocalCluster
from tests.spark.conftest import wait_for
from tests.spark.queries import ROWS_PER_BATCH, StatefulQuery, consumed, source
from tests.spark.run import Run, assert_equals_batch, placed

pytestmark = [pytest.mark.spark, pytest.mark.nightly, pytest.mark.timeout(600)]
PARTITIONS, KEYS, HELD_MS = 8, 60, 40
PERIOD = 16  # batches: a half of them is busy for some virtual nodes, the other half for the others
ROUND = 120  # batches until copies may move
NAME = "tides"


def counted(rows: DataFrame) -> DataFrame:
    return rows.select((F.col("value") % KEYS).alias("k"), "value").groupBy("k").agg(F.count("*").alias("n"))


def in_turns(early: set[int], rows: DataFrame) -> DataFrame:
    """Keys of the partitions `early` are held in one half of the batches, and all others in the other half."""
    partition = F.pmod(F.hash("k"), F.lit(PARTITIONS))
    turn = F.pmod(F.floor(F.col("n") / (ROWS_PER_BATCH // KEYS * PERIOD // 2)), F.lit(2))
    busy = turn == F.when(partition.isin(*early), 0).otherwise(1)
    held = F.expr(f"reflect('java.lang.Thread', 'sleep', bigint({HELD_MS}))")
    return counted(rows).where(F.when(busy, held).otherwise("").isNotNull())


def query(early: set[int]) -> StatefulQuery:
    return StatefulQuery(
        NAME, "update", lambda s: in_turns(early, source(s)), lambda s, n: counted(consumed(s, n)), "k"
    )


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    shape = ClusterShape(manager_options=("--copies-by", "load"))
    with LocalCluster(tmp_path / "cluster", workers=4, shape=shape) as running:
        yield running


Place = tuple[str, frozenset[str]]  # the owner of a virtual node, and the workers of its copies


def places(cluster: LocalCluster) -> Mapping[str, Place]:
    """By virtual node."""
    nodes = placed(cluster, NAME, PARTITIONS).virtual_nodes
    return {n.virtual_node: (n.desired_worker, frozenset(n.holders) - {n.desired_worker}) for n in nodes}


def test_a_copy_leaves_a_worker_that_is_busy_when_its_owner_is(cluster: LocalCluster, tmp_path: Path) -> None:
    spark: SparkSession = cluster.session("copies", {"spark.sql.shuffle.partitions": str(PARTITIONS)})
    run = Run(spark, query(set()), tmp_path / "query")
    running = run.start()
    run.advance(running, 2)
    before = places(cluster)
    running.stop()
    owner, (holder,) = before["0/0"]
    together = {owner, holder}  # these two are busy at one time, and the other two at the other time
    early = {int(node.partition("/")[2]) for node, (at, _) in before.items() if at in together}

    def badly_placed(now: Mapping[str, Place]) -> set[str]:
        return {node for node, (at, copies) in now.items() if any((at in together) == (c in together) for c in copies)}

    run.query = query(early)
    running = run.start()
    for _ in range((ROUND + PERIOD) // 8):
        run.advance(running, 8)
    moved: list[str] = []

    def has_moved() -> bool:
        now = places(cluster)
        whole = all(len(copies) == 1 for _, copies in now.values())
        moved[:] = sorted(badly_placed(before) - badly_placed(now)) if whole else []
        return bool(moved)

    wait_for(has_moved, f"a copy of {sorted(badly_placed(before))} has left for one of the other two", timeout_s=120)
    after = places(cluster)
    assert all(after[node][0] == at for node, (at, _) in before.items()), "only copies have moved"
    assert badly_placed(after) < badly_placed(before)
    with HandoverClient(cluster.manager) as client:
        reasons = " ".join(client.explain(NAME, moved[0]).reasons)
    assert "correlation" in reasons, reasons
    run.advance(running, 2)
    running.stop()
    assert_equals_batch(run)
    spark.stop()
