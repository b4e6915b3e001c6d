"""A worker whose sidecar is gone while its executor lives: the query goes on elsewhere at once, and comes back."""

from __future__ import annotations

from pathlib import Path

import pytest

from rhino.testing import LocalCluster
from tests.spark.conftest import SharedSession, wait_for
from tests.spark.queries import QUERIES
from tests.spark.run import Run, assert_equals_batch

pytestmark = [pytest.mark.spark, pytest.mark.nightly, pytest.mark.timeout(400)]
GONE, BACK = "can neither load nor commit state", "has its sidecar again"


def test_no_task_is_sent_to_an_executor_without_its_sidecar(
    cluster: LocalCluster, shared: SharedSession, tmp_path: Path
) -> None:
    log = cluster.log_dir / "spark-driver.log"
    seen = len(log.read_text())

    def lines(text: str) -> list[str]:
        return [line for line in log.read_text()[seen:].splitlines() if text in line]

    with shared.with_settings({"spark.sql.shuffle.partitions": "6"}) as spark:
        run = Run(spark, QUERIES["aggregation"], tmp_path)
        running = run.start()
        run.advance(running, 3)
        cluster.kill_sidecar(2)
        wait_for(lambda: lines(GONE), "the driver names the executor", timeout_s=60)
        assert cluster.workers[2].host in lines(GONE)[0]
        assert "rhino sidecar --socket" in lines(GONE)[0]
        run.advance(running, 1)
        failed = len(lines("no session with a Rhino sidecar"))
        run.advance(running, 3)
        assert len(lines("no session with a Rhino sidecar")) == failed
        cluster.restart_sidecar(2)
        wait_for(lambda: lines(BACK), "the driver knows of the sidecar")
        run.advance(running, 1)
        running.stop()
        assert_equals_batch(run)


def test_a_task_that_keeps_failing_on_one_worker_is_done_on_another(cluster: LocalCluster, tmp_path: Path) -> None:
    """There has never been a sidecar where one executor looks for it: the first batch has nobody's word about that."""
    socket = cluster.socket
    away = Path(socket.replace("{host}", cluster.workers[1].host))
    hidden = away.with_name("hidden.sock")
    away.rename(hidden)
    try:
        spark = cluster.session("never a sidecar", {"spark.sql.shuffle.partitions": "6"})
        try:
            run = Run(spark, QUERIES["aggregation"], tmp_path)
            running = run.start()
            run.advance(running, 3)
            running.stop()
            assert_equals_batch(run)
        finally:
            spark.stop()
    finally:
        hidden.rename(away)
