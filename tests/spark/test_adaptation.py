"""A query whose load is uneven is balanced by itself, and tells why."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from typer.testing import CliRunner

from rhino import HandoverClient, Phase
from rhino.cli.main import app
from rhino.testing import ClusterShape, LocalCluster
from rhino_model.decisions import Outcome
from tests.spark.conftest import wait_for
from tests.spark.queries import StatefulQuery, consumed, source
from tests.spark.run import Run, assert_equals_batch, placed

pytestmark = [pytest.mark.spark, pytest.mark.nightly, pytest.mark.timeout(400)]
PARTITIONS, KEYS, HOT_MS = 6, 60, 80
NAME = "uneven"


def partition_of(key: str) -> Column:
    return F.pmod(F.hash(key), F.lit(PARTITIONS))


def counted(rows: DataFrame) -> DataFrame:
    return rows.select((F.col("value") % KEYS).alias("k"), "value").groupBy("k").agg(F.count("*").alias("n"))


def uneven(rows: DataFrame) -> DataFrame:
    """The tasks of partitions 0 and 1 take some time for each of their keys."""
    held = F.expr(f"reflect('java.lang.Thread', 'sleep', bigint({HOT_MS}))")
    return counted(rows).where(F.when(partition_of("k") < 2, held).otherwise("").isNotNull())


UNEVEN = StatefulQuery(NAME, "update", lambda s: uneven(source(s)), lambda s, n: counted(consumed(s, n)), "k")


@pytest.fixture
def adapting(tmp_path: Path) -> Iterator[LocalCluster]:
    with LocalCluster(tmp_path / "cluster", shape=ClusterShape(adaptation="act")) as running:
        yield running


@pytest.fixture
def spark(adapting: LocalCluster) -> Iterator[SparkSession]:
    session = adapting.session("adaptation", {"spark.sql.shuffle.partitions": str(PARTITIONS)})
    yield session
    session.stop()


def desired(cluster: LocalCluster) -> dict[str, str]:
    return {node.virtual_node: node.desired_worker for node in placed(cluster, NAME, PARTITIONS).virtual_nodes}


def test_two_busy_virtual_nodes_on_one_worker_are_parted(
    adapting: LocalCluster, spark: SparkSession, tmp_path: Path
) -> None:
    run = Run(spark, UNEVEN, tmp_path / "query")
    running = run.start()
    run.advance(running, 2)
    with HandoverClient(adapting.manager) as client:
        places = desired(adapting)
        if places["0/0"] != places["0/1"]:
            together = client.start(NAME, ["0/1"], places["0/0"], deadline_s=90)
            assert client.wait(together.handover_id, timeout_s=100).phase is Phase.CONFIRMED

        def told() -> bool:
            return Outcome.HELPED in {decision.outcome for decision in client.decisions(NAME).decisions}

        wait_for(told, "adaptation has moved a virtual node, and says that it has helped", timeout_s=150)
        decisions = client.decisions(NAME)
    assert decisions.mode == "act"
    moving = next(decision for decision in decisions.decisions if decision.outcome is Outcome.MOVING)
    assert {"0/0", "0/1"} & {move.virtual_node for move in moving.moves}
    assert moving.measured is not None
    assert moving.planned is not None
    assert moving.planned < moving.measured
    places = desired(adapting)
    assert places["0/0"] != places["0/1"]
    printed = CliRunner().invoke(app, ["why", "--job", NAME, "--manager", adapting.manager])
    assert printed.exit_code == 0, printed.output
    assert f"{NAME}: helped" in printed.output
    run.advance(running, 2)
    running.stop()
    assert_equals_batch(run)
