"""Block-centric placement on Spark: a worker is killed, and others take its state over from blocks that they fetch."""

from __future__ import annotations

from pathlib import Path

import pytest

from rhino.client.overview import fetch_overview
from rhino.testing import LocalCluster
from tests.spark.conftest import wait_for
from tests.spark.queries import QUERIES
from tests.spark.run import Run, assert_equals_batch, job
from tests.spark.support.drain import loads

pytestmark = [pytest.mark.spark, pytest.mark.nightly, pytest.mark.timeout(240)]
NAME = "aggregation"
WORKERS = 4
PARTITIONS = 8
CONF = {
    "spark.sql.shuffle.partitions": str(PARTITIONS),
    "spark.rhino.placement": "block",
    "spark.rhino.replicationFactor": str(WORKERS - 1),
    "spark.rhino.minCopies": "2",
}


def test_a_lost_workers_blocks_are_on_others(tmp_path: Path) -> None:
    """Twice: after the first loss every block gets its second copy again."""
    with LocalCluster(tmp_path / "cluster", workers=WORKERS) as cluster:
        spark = cluster.session("spread blocks", CONF)
        run = Run(spark, QUERIES[NAME], tmp_path / "query")
        running = run.start()
        run.advance(running, 6)

        def whole(members: int) -> bool:
            groups = fetch_overview(cluster.manager).groups
            return len(groups) == PARTITIONS and all(
                len(g.members) == members and all(m.whole for m in g.members) for g in groups
            )

        fetched = 0
        for left in (WORKERS, WORKERS - 1):
            wait_for(lambda left=left: whole(left), f"groups of {left} whole members")  # type: ignore[misc]
            view = job(cluster, NAME)
            assert view is not None
            victim = max(node.desired_worker for node in view.virtual_nodes)
            since = run.logged()
            cluster.kill_worker(int(victim.removeprefix("worker-")))
            run.advance(running, 4)
            fetched += loads(running, since)["rhinoFetchedBytes"]
        assert fetched > 0
        running.stop()
        assert_equals_batch(run)
        spark.stop()
