"""While all slots of a worker are taken its tasks run elsewhere: they return, and nothing wanders."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from rhino import HandoverClient, Phase
from rhino.client.overview import JobView, fetch_overview
from rhino.testing import ClusterShape, LocalCluster
from tests.spark.conftest import wait_for
from tests.spark.queries import QUERIES
from tests.spark.run import Run, assert_equals_batch, job
from tests.spark.support.drain import NAME, loads

pytestmark = [pytest.mark.spark, pytest.mark.nightly, pytest.mark.timeout(300)]
PARTITIONS = 6
SLOTS = ClusterShape().worker_cores
SETTINGS = {
    "spark.sql.shuffle.partitions": str(PARTITIONS),
    "spark.rhino.replicationFactor": "1",
    "spark.locality.wait": "300ms",  # tasks give up soon
}
TASKS = 48  # quickly done on other workers
AGAIN_S = 3.0
LONG_BATCH_S = 14.0
SLOWLY = "5 seconds"  # between two batches: there is time to free the slots after the first


@pytest.fixture(scope="module")
def spark(cluster: LocalCluster) -> Iterator[SparkSession]:
    session = cluster.session("busy workers", SETTINGS)
    yield session
    session.stop()


@contextmanager
def all_slots_taken(spark: SparkSession, worker: str, folder: Path) -> Iterator[None]:
    """By tasks that sleep on `worker`; those that come to other workers end at once."""
    folder.mkdir()
    over = folder / "over"

    def hold(_: Iterator[int]) -> None:
        if f"/{worker}/" in os.getcwd() and not over.exists():
            over.with_name(f"held-{uuid.uuid4()}").touch()
            while not over.exists():
                time.sleep(0.05)

    def take() -> None:
        spark.sparkContext.parallelize(range(TASKS), TASKS).foreachPartition(hold)

    def taken() -> bool:
        if len(list(folder.glob("held-*"))) >= SLOTS:
            return True
        if time.monotonic() - begun[-1] > AGAIN_S:  # a batch had the slots
            jobs.append(pool.submit(take))
            begun.append(time.monotonic())
        return False

    jobs: list[Future[None]] = []
    begun = [-AGAIN_S]
    with ThreadPoolExecutor() as pool:
        try:
            wait_for(taken, f"{SLOTS} tasks on {worker}")
            yield
        finally:
            over.touch()
            for ended in jobs:
                ended.result()


def settled(cluster: LocalCluster) -> JobView:
    """The job, once every virtual node ran where it should and has a whole replica on another worker."""
    found: list[JobView] = []

    def holds() -> bool:
        view = job(cluster, NAME)
        nodes = view.virtual_nodes if view else ()
        at_home = all(n.desired_worker == n.actual_worker and len(n.holders) > 1 for n in nodes)
        if view and len(nodes) == PARTITIONS and at_home and not view.missed_now:
            found.append(view)
        return bool(found)

    wait_for(holds, "every virtual node in its place, with a replica")
    return found[0]


def members(cluster: LocalCluster, view: JobView) -> dict[int, list[str]]:
    """Workers of each group, the owner first."""
    groups = [g for g in fetch_overview(cluster.manager).groups if g.group.job == view.job]
    return {g.group.partition: [m.worker_id for m in g.members] for g in groups}


def test_a_miss_is_counted_and_corrected_and_moves_no_replica(
    cluster: LocalCluster, spark: SparkSession, tmp_path: Path
) -> None:
    run = Run(spark, QUERIES[NAME], tmp_path / "query")
    running = run.start(trigger=SLOWLY)
    run.advance(running, 3)
    before = settled(cluster)
    groups = members(cluster, before)
    busy = before.virtual_nodes[0].desired_worker
    its = {n.virtual_node for n in before.virtual_nodes if n.desired_worker == busy}
    missed: list[JobView] = []

    def miss_seen() -> bool:
        view = job(cluster, NAME)
        if view and view.missed_now:
            missed.append(view)
        return bool(missed)

    with all_slots_taken(spark, busy, tmp_path / "held"):
        wait_for(miss_seen, "a batch that ran elsewhere than desired")
    back = missed[0].batch_id + 1
    run.advance(running, 1)
    after = settled(cluster)
    elsewhere = {n.virtual_node for n in missed[0].virtual_nodes if n.actual_worker != n.desired_worker}
    assert elsewhere == its
    assert (missed[0].missed_now, missed[0].misses - before.misses) == (len(its), len(its))
    assert after.misses == missed[0].misses, "corrected with the next batch"
    assert [n.desired_worker for n in after.virtual_nodes] == [n.desired_worker for n in before.virtual_nodes]
    assert members(cluster, after) == groups
    assert loads(running, back)["rhinoFetchedBytes"] == 0, "what was written elsewhere is at home already"
    running.stop()
    assert_equals_batch(run)


def test_a_move_to_a_worker_without_a_free_slot_is_rolled_back(
    cluster: LocalCluster, spark: SparkSession, tmp_path: Path
) -> None:
    run = Run(spark, QUERIES[NAME], tmp_path / "query")
    running = run.start()
    run.advance(running, 3)
    before = settled(cluster)
    node = before.virtual_nodes[0]
    target = next(w for w in node.holders if w != node.desired_worker)
    with all_slots_taken(spark, target, tmp_path / "held"), HandoverClient(cluster.manager) as client:
        started = client.start(NAME, [node.virtual_node], target, deadline_s=8)
        ended = client.wait(started.handover_id, timeout_s=60)
    assert ended.phase is Phase.ROLLED_BACK
    assert ended.steps[0].marked_ms > 0
    assert f"{node.virtual_node}" in ended.reason
    run.advance(running, 2)
    after = settled(cluster)
    moved = next(n for n in after.virtual_nodes if n.virtual_node == node.virtual_node)
    assert moved.actual_worker != target
    running.stop()
    assert_equals_batch(run)


def test_a_query_in_a_long_batch_is_not_idle(cluster: LocalCluster, spark: SparkSession, tmp_path: Path) -> None:
    """It logs nothing for longer than an idle one has to."""

    def sink(rows: DataFrame, _: int) -> None:
        rows.count()
        time.sleep(LONG_BATCH_S)

    run = Run(spark, QUERIES[NAME], tmp_path / "query")
    writer = QUERIES[NAME].stream(spark).writeStream.queryName(NAME).outputMode(QUERIES[NAME].output_mode)
    running = writer.option("checkpointLocation", run.location).foreachBatch(sink).start()
    run.advance(running, 1)
    node = settled(cluster).virtual_nodes[0]
    target = next(w for w in node.holders if w != node.desired_worker)
    with HandoverClient(cluster.manager) as client:
        started = client.start(NAME, [node.virtual_node], target, deadline_s=60)
        ended = client.wait(started.handover_id, timeout_s=70)
    running.stop()
    assert ended.phase is Phase.CONFIRMED
    assert ended.confirmed_batch_id >= 1
