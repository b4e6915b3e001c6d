"""A Spark driver with a certificate: it takes a new one without a restart, and a job stays with its driver."""

from __future__ import annotations

import datetime as dt
import re
from pathlib import Path

import pytest

from rhino.client.overview import JobView
from rhino.client.query_record import set_owner
from rhino.testing import LocalCluster
from rhino.testing.session import close_driver
from rhino_core.security.certificates import Authority
from rhino_core.security.folders import write_folder
from rhino_core.security.identity import Identity, Role
from rhino_core.security.sources import read_cluster_key
from tests.spark.conftest import wait_for
from tests.spark.queries import QUERIES
from tests.spark.run import Run, assert_equals_batch, job

pytestmark = [pytest.mark.spark, pytest.mark.nightly, pytest.mark.timeout(400)]
SETTINGS = {"spark.sql.shuffle.partitions": "4"}


def issue(cluster: LocalCluster, folder: Path, name: str) -> None:
    """Writes a driver's certificate of the cluster into the folder."""
    assert cluster.cluster_key
    authority = Authority.of_cluster_key(read_cluster_key(Path(cluster.cluster_key)))
    write_folder(folder, authority.issue(Identity(authority.cluster, Role.DRIVER, name), dt.timedelta(hours=1)))


def known(cluster: LocalCluster) -> JobView:
    """The query, once its driver is connected and has reported it."""
    wait_for(lambda: job(cluster, "aggregation"), "the driver reports its query")
    found = job(cluster, "aggregation")
    assert found is not None
    return found


def test_a_new_certificate_counts_and_another_driver_is_refused(cluster: LocalCluster, tmp_path: Path) -> None:
    tls = tmp_path / "tls"
    issue(cluster, tls, "etl")
    log = cluster.log_dir / "spark-driver.log"
    spark = cluster.session("certificates", SETTINGS | {"spark.rhino.tls.dir": str(tls)})
    spark.sparkContext.setLogLevel("INFO")
    try:
        run = Run(spark, QUERIES["aggregation"], tmp_path)
        running = run.start()
        run.advance(running, 2)
        found = known(cluster)
        assert found.owner == "etl"

        seen = len(log.read_text())
        issue(cluster, tls, "etl")
        cluster.restart_manager()
        run.advance(running, 2)
        wait_for(lambda: f"new certificate in {tls}" in log.read_text()[seen:], "the new certificate is used")
        known(cluster)
        run.advance(running, 1)
        running.stop()

        issue(cluster, tls, "adhoc")  # from now on this driver is another one
        cluster.restart_manager()
        wait_for(lambda: "is back" in log.read_text()[seen:].rpartition("new certificate")[2], "a session as adhoc")
        refused = run.start()
        wait_for(lambda: not refused.isActive, "the refusal")
        assert re.search("belongs to the driver 'etl'", str(refused.exception()))

        set_owner(cluster.manager, found.job, "adhoc")
        running = run.start()
        run.advance(running, 2)
        running.stop()
        assert_equals_batch(run)
    finally:
        close_driver()  # the next session has Spark's own log level again
