"""A local cluster gets workers and loses some, under a running session."""

from __future__ import annotations

from pathlib import Path

import pytest

from rhino.client.overview import fetch_overview
from rhino.testing import ClusterError, ClusterShape, ElasticCluster
from rhino.testing.query_watch import driver_hosts
from tests.rhino.support.local_cluster import alive, eventually

pytestmark = [pytest.mark.spark, pytest.mark.nightly]
SETTINGS = {
    "spark.cores.max": "2",
    "spark.scheduler.minRegisteredResourcesRatio": "0.5",
    "spark.decommission.enabled": "true",
    "spark.locality.wait": "0",
}


def test_a_session_gets_a_worker_and_gives_one_back(tmp_path: Path) -> None:
    with ElasticCluster(tmp_path, workers=1, rhino=False, shape=ClusterShape(worker_cores=1)) as cluster:
        spark = cluster.session("elastic", SETTINGS)
        assert spark.range(100).repartition(4).count() == 100
        added = cluster.add_worker()
        assert added is cluster.workers[1]
        eventually(lambda: added.host in driver_hosts(spark), "an executor on the new worker")
        pids = cluster.workers[0].pids()
        cluster.remove_worker(0)
        assert alive(pids) == []
        cluster.check()
        assert cluster.present == [added]
        assert spark.range(100).repartition(4).count() == 100
        with pytest.raises(ClusterError, match="worker-0 has been killed or removed before"):
            cluster.remove_worker(0)


def test_an_added_worker_has_a_sidecar_and_the_manager_its_options(tmp_path: Path) -> None:
    shape = ClusterShape(manager_options=("--adaptation-band", "0.3", "--log-level", "debug"))
    with ElasticCluster(tmp_path, workers=1, shape=shape) as cluster:
        added = cluster.add_worker()
        assert added.peer_address.startswith(f"{added.host}:")
        seen = {worker.worker_id: worker.state for worker in fetch_overview(cluster.manager).workers}
        assert seen == {"worker-0": "live", "worker-1": "live"}
        command = Path(f"/proc/{cluster.manager_pid}/cmdline").read_text().split("\0")
        assert command[command.index("--adaptation-band") + 1] == "0.3"
