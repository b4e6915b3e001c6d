"""One sidecar cannot reach another one, without a word; all else can: commits go on, and every worker stays live."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import pytest

from rhino.client.overview import fetch_overview
from rhino.testing import LocalCluster
from rhino.testing.network import Namespaces
from tests.spark.queries import QUERIES
from tests.spark.run import Run, assert_equals_batch
from tests.spark.support.drain import NAME, PARTITIONS, busiest

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
BOUND_S = 20.0  # a commit goes past a member after 1 s; the rest is for a machine that is busy with other tests


def test_commits_go_on_while_one_worker_cannot_reach_another(tmp_path: Path) -> None:
    conf = {"spark.sql.shuffle.partitions": str(PARTITIONS), "spark.rhino.replicationFactor": "2"}
    with (
        Namespaces(WORKERS) as network,
        LocalCluster(tmp_path / "cluster", workers=WORKERS, network=network) as cluster,
    ):
        spark = cluster.session("partial", conf)
        try:
            run = Run(spark, QUERIES[NAME], tmp_path / "query")
            running = run.start()
            run.advance(running, 4)
            owner = int(busiest(cluster)[0].removeprefix("worker-"))
            others = [index for index in range(WORKERS) if index != owner]
            sidecar = cluster.workers[others[0]].sidecar
            assert sidecar is not None
            ports = network.listening(others[0], sidecar.pid)
            assert len(ports) >= 2, "peers' calls, and files"
            network.cut_towards(owner, others[0], ports)
            for _ in range(4):
                since = time.monotonic()
                run.advance(running, 1)
                assert time.monotonic() - since < BOUND_S
            states = {worker.worker_id: worker.state for worker in fetch_overview(cluster.manager).workers}
            assert set(states.values()) == {"live"}
            running.stop()
            assert_equals_batch(run)
        finally:
            spark.stop()
