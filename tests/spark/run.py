"""A streaming query of the tests: started, stopped, handed over, and compared with a batch computation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from rhino import HandoverClient
from rhino.client.handover_client import Phase
from rhino.client.overview import JobView, VirtualNodeView, fetch_overview
from rhino.testing import LocalCluster
from tests.spark.conftest import wait_for
from tests.spark.queries import StatefulQuery


class Run:
    """One streaming query with its folders; can be started again from its checkpoint."""

    def __init__(
        self, spark: SparkSession, query: StatefulQuery, folder: Path, locate: Callable[[Path], str] = str
    ) -> None:
        """`locate` makes the checkpointLocation from the folder of the query checkpoint."""
        self.spark = spark
        self.query = query
        self.checkpoint = folder / "checkpoint"
        self.location = locate(self.checkpoint)
        self.output = folder / "output"

    def start(
        self, trigger: str = "250 milliseconds", written: Callable[[int], None] = lambda batch_id: None
    ) -> StreamingQuery:
        """`trigger`: from the start of a batch to that of the next, if there is time.

        `written` is called with each batch whose output is written. The batch ends, and is logged, after that.
        """
        self.spark.conf.set("spark.sql.streaming.join.stateFormatVersion", str(self.query.state_format))
        output = str(self.output)

        def sink(rows: DataFrame, batch_id: int) -> None:
            rows.withColumn("batch_id", F.lit(batch_id)).write.mode("overwrite").parquet(f"{output}/{batch_id}")
            written(batch_id)

        return (
            self.query.stream(self.spark)
            .writeStream.queryName(self.query.name)
            .outputMode(self.query.output_mode)
            .option("checkpointLocation", self.location)
            .trigger(processingTime=trigger)
            .foreachBatch(sink)
            .start()
        )

    def logged(self) -> int:
        """Batches in Spark's commit log."""
        commits = self.checkpoint / "commits"
        names = [int(p.name) for p in commits.iterdir() if p.name.isdigit()] if commits.exists() else []
        return max(names, default=-1) + 1

    def advance(self, running: StreamingQuery, batches: int) -> None:
        goal = self.logged() + batches

        def reached() -> bool:
            error = running.exception()
            assert error is None, str(error)
            return self.logged() >= goal

        wait_for(reached, f"{self.query.name}: batch {goal}")

    def result(self, batches: int) -> DataFrame:
        rows = self.spark.read.parquet(*[f"{self.output}/{b}" for b in range(batches)])
        if self.query.key is None:
            return rows.drop("batch_id")
        newest = rows.groupBy(self.query.key).agg(F.max("batch_id").alias("batch_id"))
        return rows.join(newest, [self.query.key, "batch_id"]).drop("batch_id")


def job(cluster: LocalCluster, name: str) -> JobView | None:
    return next((j for j in fetch_overview(cluster.manager).jobs if j.name == name and j.connected), None)


def assert_equals_batch(run: Run) -> None:
    """What the stream has written so far equals the batch computation over the rows that it has read."""
    batches = run.logged()
    assert_same_rows(run.result(batches), run.query.batch(run.spark, batches))


def assert_same_rows(got: DataFrame, expected: DataFrame) -> None:
    """In any order, and as often. They are compared here: `exceptAll` takes Spark several jobs for so few rows."""
    expected = expected.select(*[F.col(c).cast(got.schema[c].dataType) for c in got.columns])
    found, wanted = (Counter(map(tuple, rows.collect())) for rows in (got, expected))
    assert wanted.total() > 50
    missing, extra = list((wanted - found).elements()), list((found - wanted).elements())
    assert (missing[:5], extra[:5]) == ([], []), f"{len(missing)} rows missing, {len(extra)} too many"


def placed(cluster: LocalCluster, name: str, count: int) -> JobView:
    """The job, once `count` virtual nodes have a worker and a holder."""
    found: list[JobView] = []

    def settled() -> bool:
        view = job(cluster, name)
        nodes = view.virtual_nodes if view else ()
        if view and len(nodes) >= count and all(n.desired_worker and n.holders for n in nodes):
            found.append(view)
        return bool(found)

    wait_for(settled, f"{name}: every virtual node has a worker")
    return found[0]


def hand_over_one(cluster: LocalCluster, name: str, partitions: int) -> None:
    """Moves one virtual node to another worker and waits until a logged batch confirms it."""
    hand_over(cluster, name, placed(cluster, name, partitions).virtual_nodes[0])


def hand_over(cluster: LocalCluster, name: str, node: VirtualNodeView) -> None:
    """As `hand_over_one`, of `node`."""
    workers = sorted(w.worker_id for w in fetch_overview(cluster.manager).workers if w.state == "live")
    target = next(w for w in workers if w != node.desired_worker)
    with HandoverClient(cluster.manager) as client:
        started = client.start(name, [node.virtual_node], target, deadline_s=90)
        ended = client.wait(started.handover_id, timeout_s=100)
    assert ended.phase is Phase.CONFIRMED, ended.reason
    after = job(cluster, name)
    assert after is not None
    moved = next(n for n in after.virtual_nodes if n.virtual_node == node.virtual_node)
    assert moved.desired_worker == target
