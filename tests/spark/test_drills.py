"""Restore drills of state that Spark writes: both closures of a version have the same content, as Spark has it."""

from __future__ import annotations

from pathlib import Path

import pytest

from rhino.client.handover_client import HandoverClient
from rhino.testing import ClusterShape, LocalCluster
from rhino_model.archives import Archive
from tests.spark.conftest import wait_for
from tests.spark.queries import QUERIES
from tests.spark.run import Run

pytestmark = [pytest.mark.spark, pytest.mark.timeout(420)]
SETTINGS = {
    "spark.sql.shuffle.partitions": "2",
    # The archive often has another closure than the worker.
    "spark.sql.streaming.stateStore.minDeltasForSnapshot": "3",
    "spark.sql.streaming.stateStore.maintenanceInterval": "500ms",
}
CHECKSUMS = {"spark.sql.streaming.stateStore.rowChecksum.enabled": "true"}


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("query", "more"),
    [("join4", {}), ("join4", CHECKSUMS), ("distinct", CHECKSUMS)],
    ids=["join4", "join4-checksums", "distinct-checksums"],
)
def test_drills_of_a_running_query_pass(tmp_path: Path, query: str, more: dict[str, str]) -> None:
    (tmp_path / "archive").mkdir()
    options = ("--archive", str(tmp_path / "archive"), "--archive-every-s", "1", "--archive-drill-every-s", "1")
    shape = ClusterShape(manager_options=options)
    with LocalCluster(tmp_path / "cluster", workers=2, shape=shape) as cluster:
        run = Run(cluster.session("drills", SETTINGS | more), QUERIES[query], tmp_path)

        def archive() -> Archive:
            with HandoverClient(cluster.manager) as client:
                return client.archive()

        running = run.start()
        for _ in range(4):
            run.advance(running, 2)
            before = archive().drills.passed
            wait_for(lambda n=before: archive().drills.passed > n, "another drill has passed")  # type: ignore[misc]
        running.stop()
        drills = archive().drills
        assert (drills.failed, drills.failures) == (0, ()), drills
        assert drills.unproven == 0, drills
