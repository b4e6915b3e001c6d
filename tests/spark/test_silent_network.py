"""A worker's network falls silent, without a reset: the query goes on from replicas, and its output is right."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from rhino.client.overview import fetch_overview
from rhino.testing import LocalCluster
from rhino.testing.network import Namespaces
from tests.spark.conftest import wait_for
from tests.spark.queries import QUERIES
from tests.spark.run import Run, assert_equals_batch
from tests.spark.support.drain import NAME, PARTITIONS, busiest, loads

pytestmark = [
    pytest.mark.spark,
    pytest.mark.nightly,
    pytest.mark.timeout(300),
    pytest.mark.skipif(
        os.geteuid() != 0 or shutil.which("ip") is None or shutil.which("tc") is None,
        reason="network namespaces need root and iproute2",
    ),
]
WORKERS = 3


def test_a_query_goes_on_when_a_worker_falls_silent(tmp_path: Path) -> None:
    with (
        Namespaces(WORKERS) as network,
        LocalCluster(tmp_path / "cluster", workers=WORKERS, network=network) as cluster,
    ):
        spark = cluster.session("silence", {"spark.sql.shuffle.partitions": str(PARTITIONS)})
        try:
            run = Run(spark, QUERIES[NAME], tmp_path / "query")
            running = run.start()
            run.advance(running, 4)
            victim, _ = busiest(cluster)
            since = run.logged()
            network.cut(int(victim.removeprefix("worker-")))
            run.advance(running, 4)
            assert loads(running, since)["rhinoFetchedBytes"] == 0
            states = {w.worker_id: w.state for w in fetch_overview(cluster.manager).workers}
            assert states[victim] == "lost"
            wait_for(lambda: busiest(cluster)[0] != victim, "its virtual nodes have other workers and replicas")
            running.stop()
            assert_equals_batch(run)
        finally:
            spark.stop()
