"""The query on a cluster of its own, until its last batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession

from benchmarks.balance import query
from benchmarks.balance.observed import Heard, Listener
from benchmarks.balance.query import Load
from rhino import Handover, HandoverClient
from rhino.testing import ClusterShape, LocalCluster
from rhino.testing.query_watch import Batch, QueryWatch, RunError
from rhino_model.decisions import Decision
from workloads.nexmark.output import Verdict

QUERY_NAME = "balance"
Say = Callable[[str], None]
CONF = {
    "spark.sql.streaming.numRecentProgressUpdates": "2000",
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    # Counting keys reads the whole value before every write, which costs much processor time in this query.
    "spark.sql.streaming.stateStore.rocksdb.trackTotalNumberOfRows": "false",
}


@dataclass(frozen=True, slots=True)
class Place:
    """A cluster. `options`: of the manager, beside `--adaptation act`."""

    workers: int
    worker_cores: int
    partitions: int
    trigger_s: float
    options: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Seen:
    """A whole run: the loads reported to the manager, the batches, the decisions and moves, and the output."""

    heard: tuple[Heard, ...]
    batches: tuple[Batch, ...]
    decisions: tuple[Decision, ...]
    handovers: tuple[Handover, ...]
    verdict: Verdict

    def batch(self, batch_id: int) -> Batch:
        return next(batch for batch in self.batches if batch.batch_id == batch_id)

    def in_time(self, trigger_s: float, first: int = 1) -> float:
        """The part of the batches within the trigger interval, from `first` on."""
        chosen = [batch for batch in self.batches if batch.batch_id >= first]
        return sum(batch.duration_ms <= trigger_s * 1000 for batch in chosen) / len(chosen)


@dataclass(slots=True)
class Running:
    """The query, the watch over it, and the manager's news of its batches."""

    cluster: LocalCluster
    spark: SparkSession
    watch: QueryWatch
    listener: Listener
    load: Load
    folder: Path
    say: Say
    stop: Callable[[], None]

    def finish(self) -> Seen:
        """Waits for the last batch, stops the query, and compares its output with DuckDB's answer.

        Raises RunError when the query fails, and for rows dropped as late.
        """
        last = self.load.batches - 1
        self.watch.wait_for_batch(last)
        batches = self.watch.batches(last)
        self.watch.wait_for(lambda: any(one.load.batch_id >= last for one in self.listener.heard()))
        heard = tuple(one for one in self.listener.heard() if 0 < one.load.batch_id <= last)
        with HandoverClient(self.cluster.manager) as client:
            decisions, handovers = client.decisions(QUERY_NAME).decisions, client.list(QUERY_NAME)
        if dropped := self.watch.dropped_rows():
            raise RunError(f"{dropped} rows were dropped as too late")
        self.stop()
        self.say("comparing the output with DuckDB over the same events")
        verdict = query.compare(self.spark, self.load, self.folder / "output", self.folder / "events")
        return Seen(heard, tuple(batches), decisions, handovers, verdict)


@contextmanager
def running(folder: Path, load: Load, place: Place, say: Say, polled: Callable[[int], None]) -> Iterator[Running]:
    """Starts a cluster in `folder` with the query on it. `polled` is called with the newest batch many times."""
    folder.mkdir(parents=True)
    shape = ClusterShape(place.worker_cores, adaptation="act", manager_options=place.options)
    say(f"starting {place.workers} workers")
    with LocalCluster(folder, workers=place.workers, shape=shape) as cluster:
        spark = cluster.session("rhino benchmark", CONF | {"spark.sql.shuffle.partitions": str(place.partitions)})
        with Listener(cluster.manager, QUERY_NAME) as listener:
            started = (
                query.stream(spark, load)
                .writeStream.queryName(QUERY_NAME)
                .outputMode("append")
                .format("parquet")
                .option("path", str(folder / "output"))
                .option("checkpointLocation", str(folder / "checkpoint"))
                .trigger(processingTime=f"{round(place.trigger_s * 1000)} milliseconds")
                .start()
            )
            watch = QueryWatch(started, folder / "checkpoint", on_poll=polled, check=cluster.check)
            try:
                yield Running(cluster, spark, watch, listener, load, folder, say, started.stop)
            finally:
                started.stop()
        spark.stop()
