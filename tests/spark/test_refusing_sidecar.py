"""A sidecar that refuses, or answers late: nothing is left behind, and the user reads the reason."""

from __future__ import annotations

import json
import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from google.protobuf.message import Message
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from rhino import rhino_checkpoint, rhino_conf
from rhino.testing import LocalCluster
from rhino.testing.session import open_session
from spark_connector.conf import PROVIDER_CLASSES
from tests.nightly import few
from tests.spark.conftest import wait_for
from tests.spark.proxy_sidecar import ProxySidecar
from tests.spark.queries import QUERIES
from tests.spark.run import Run

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]
PROVIDER = "spark.sql.streaming.stateStore.providerClass"
REASON = "needs 2 whole members, has 1"


class Local:
    """A session in one JVM whose sidecar is the proxy; `again()` is a new one, which has no store open."""

    def __init__(self, cluster: LocalCluster, proxy: ProxySidecar) -> None:
        self.proxy = proxy
        self._log = cluster.log_dir / "spark-driver.log"
        self._conf = rhino_conf(cluster.manager, socket=str(proxy.socket), replication_factor=0) | {
            "spark.master": "local[2]",
            "spark.driver.host": "127.0.0.1",
            "spark.ui.enabled": "false",
            "spark.sql.shuffle.partitions": "2",
            "spark.log.level": "WARN",
            "spark.rhino.commitTimeout": "2",
            "spark.sql.streaming.stateStore.minDeltasForSnapshot": "2",
            "spark.sql.streaming.stateStore.maintenanceInterval": "300ms",
        }
        self.spark = self._open()

    def _open(self) -> SparkSession:
        return open_session(self._conf, log_path=self._log)

    def again(self) -> None:
        self.spark.stop()
        self.spark = self._open()


@pytest.fixture
def local(cluster: LocalCluster, tmp_path: Path) -> Iterator[Local]:
    behind = cluster.socket.replace("{host}", cluster.workers[0].host)
    with ProxySidecar(Path(behind).with_name(f"proxy-{time.monotonic_ns()}"), behind) as proxy:
        session = Local(cluster, proxy)
        yield session
        session.spark.stop()


def failure(query: StreamingQuery) -> str:
    """Waits for the query's error."""
    wait_for(lambda: not query.isActive, "the query ends")
    error = query.exception()
    assert error is not None
    return str(error)


@pytest.mark.nightly
def test_a_refused_commit_leaves_nothing_and_its_reason_is_told(local: Local, tmp_path: Path) -> None:
    def refuse(request: Message, context: grpc.ServicerContext) -> None:
        """As a sidecar does: it waits as long as it may, then says what was missing."""
        time.sleep(request.timeout_s)  # type: ignore[attr-defined]
        context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, REASON)

    local.proxy.answer("Commit", refuse)
    told = failure(Run(local.spark, QUERIES["aggregation"], tmp_path).start())
    assert REASON in told
    assert len(local.proxy.calls("Commit")) >= 2
    assert local.proxy.left_in_inboxes() == []


@pytest.mark.nightly
def test_refused_data_files_leave_nothing(local: Local, tmp_path: Path) -> None:
    def refuse(request: Message, context: grpc.ServicerContext) -> None:
        context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "disk full")

    local.proxy.answer("Add", refuse)
    run = Run(local.spark, QUERIES["aggregation"], tmp_path)
    running = run.start()
    run.advance(running, 3)
    wait_for(lambda: len(local.proxy.calls("Add")) >= 3, "snapshots are refused")
    running.stop()
    wait_for(lambda: local.proxy.left_in_inboxes() == [], "empty inboxes", timeout_s=10)


@pytest.mark.nightly
def test_a_task_that_is_killed_while_it_loads_leaves_no_pin(local: Local, tmp_path: Path) -> None:
    run = Run(local.spark, QUERIES["aggregation"], tmp_path)
    running = run.start()
    run.advance(running, 2)
    running.stop()
    local.again()
    pinned, stopping = threading.Semaphore(0), threading.Event()

    def late(request: Message, context: grpc.ServicerContext) -> Message:
        reply = local.proxy.hand_on("Prepare", request, context)
        pinned.release()
        assert stopping.wait(60)
        return reply

    local.proxy.answer("Prepare", late)
    run.spark = local.spark
    before = len(local.proxy.calls("Release"))
    running = run.start()
    assert pinned.acquire(timeout=60)
    assert pinned.acquire(timeout=60)
    running.stop()
    prepared = [list(request.versions) for request in local.proxy.calls("Prepare")]

    def released() -> bool:
        releases = [list(request.versions) for request in local.proxy.calls("Release")[before:]]
        return len(releases) >= 2 and all(versions in releases for versions in prepared[-2:])

    try:
        wait_for(released, "both versions are released", timeout_s=30)
    finally:
        stopping.set()


@pytest.mark.parametrize("way", few(PROVIDER_CLASSES))
def test_a_version_that_is_nowhere_is_sparks_own_condition(local: Local, tmp_path: Path, way: str) -> None:
    local.spark.conf.set(PROVIDER, PROVIDER_CLASSES[way])
    locate = rhino_checkpoint if way == "checkpoint" else str
    run = Run(local.spark, QUERIES["aggregation"], tmp_path, locate)
    running = run.start()
    run.advance(running, 2)
    running.stop()
    newest = run.checkpoint / "commits" / str(run.logged() - 1)
    head, body = newest.read_text().split("\n", 1)
    logged = json.loads(body)
    for stores in logged["stateUniqueIds"]["0"]:
        stores[0] = "00000000-0000-0000-0000-000000000000"
    newest.write_text(f"{head}\n{json.dumps(logged)}")
    newest.with_name(f".{newest.name}.crc").unlink(missing_ok=True)
    local.again()
    local.spark.conf.set(PROVIDER, PROVIDER_CLASSES[way])
    run.spark = local.spark
    told = failure(run.start())
    assert "CANNOT_LOAD_STATE_STORE.CANNOT_READ_STREAMING_STATE_FILE" in told
    assert "no worker holds it" in told


@pytest.mark.nightly
def test_a_late_snapshot_of_a_former_query_is_not_the_new_ones(local: Local, tmp_path: Path) -> None:
    """A maintenance thread still uploads for the query whose folder another one has taken."""
    local.spark.conf.set(PROVIDER, PROVIDER_CLASSES["checkpoint"])
    begun, go_on = threading.Event(), threading.Event()

    def hold(request: Message, context: grpc.ServicerContext) -> None:
        begun.set()
        assert go_on.wait(120)

    def commits(suffix: str) -> set[tuple[str, str]]:
        """Job and version of what has been committed."""
        found = local.proxy.calls("Commit")
        return {(c.store.job, c.name.removesuffix(suffix)) for c in found if c.name.endswith(suffix)}

    local.proxy.answer("Add", hold)
    run = Run(local.spark, QUERIES["aggregation"], tmp_path, rhino_checkpoint)
    running = run.start()
    run.advance(running, 3)
    assert begun.wait(60)
    running.stop()
    of_former = commits(".changelog")
    former = {job for job, _ in of_former}
    shutil.rmtree(run.checkpoint)
    running = run.start()
    run.advance(running, 1)
    go_on.set()
    wait_for(lambda: any(job not in former for job, _ in commits(".zip")), "a snapshot of the new query")
    running.stop()
    of_new = {version for job, version in commits(".zip") if job not in former}
    assert not of_new & {version for _, version in of_former}  # a snapshot that Spark forces has no changelog
