"""The query on a cluster of its own, until its last batch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

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

    def in_time(self, trigger_s: float, first: int) -> float:
        """The part of the batches within the trigger interval, from `first` on."""
        chosen = [batch for batch in self.batches if batch.batch_id >= first]
        return sum(batch.duration_ms <= trigger_s * 1000 for batch in chosen) / len(chosen)


def run(folder: Path, load: Load, place: Place, say: Say, polled: Callable[[int], None]) -> Seen:
    """Runs the query on a cluster in `folder` to its last batch, and compares its output with DuckDB's answer.

    `polled` is called with the newest batch many times. Raises RunError when the query fails, and for rows dropped as
    late.
    """
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
            last = load.batches - 1
            try:
                watch.wait_for_batch(last)
                batches = watch.batches(last)
                watch.wait_for(lambda: any(one.load.batch_id >= last for one in listener.heard()))
                heard = tuple(one for one in listener.heard() if 0 < one.load.batch_id <= last)
                with HandoverClient(cluster.manager) as client:
                    decisions, handovers = client.decisions(QUERY_NAME).decisions, client.list(QUERY_NAME)
                if dropped := watch.dropped_rows():
                    raise RunError(f"{dropped} rows were dropped as too late")
            finally:
                started.stop()
        say("comparing the output with DuckDB over the same events")
        verdict = query.compare(spark, load, folder / "output", folder / "events")
        spark.stop()
    return Seen(heard, tuple(batches), decisions, handovers, verdict)
