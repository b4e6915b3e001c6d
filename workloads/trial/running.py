"""One job as a running query, which can be started, followed, stopped and restarted from its checkpoint."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from rhino.testing.query_watch import QueryWatch
from workloads.trial.job import Job, Sink
from workloads.trial.place import Place
from workloads.trial.timeline import Timeline


class Running:
    """`folder` receives the query's checkpoint and output.

    `interval_s` is the time from one batch start to the next; 0 means no pause. `on_poll(position)` receives the job's
    position.
    """

    def __init__(
        self, job: Job, place: Place, folder: Path, *, interval_s: float, on_poll: Callable[[int], None]
    ) -> None:
        self.job = job
        self.place = place
        self.checkpoint = folder / "checkpoint"
        self.output = folder / "output"
        self.timeline = Timeline()
        self._interval_s = interval_s
        self._on_poll = on_poll
        self._query: StreamingQuery | None = None
        self.watch: QueryWatch

    def start(self) -> None:
        self.place.spark.conf.set("spark.sql.shuffle.partitions", str(self.job.partitions))
        writer = writer_of(self.job, self.job.stream(self.place.spark), self.output, self._interval_s)
        writer = writer.option("checkpointLocation", str(self.checkpoint)).outputMode(self.job.sink.output_mode)
        query = writer.start()
        self._query = query
        self.watch = QueryWatch(
            query,
            self.checkpoint,
            on_poll=lambda committed: self._on_poll(self._position(committed)),
            check=self.place.check,
        )

    def stop(self) -> None:
        """Stops the query, usually in the middle of a batch. Idempotent."""
        if self._query is not None:
            self._query.stop()
            self.timeline.note(self._query.recentProgress)
            self._query = None

    def reach(self, position: int) -> None:
        """Waits until the job has reached the position."""
        self.watch.wait_for(lambda: self._position(self.watch.committed()) >= position)

    def finish(self) -> None:
        """Waits until all rows are written and all batches reported."""
        self.reach(self.job.goal)
        self.watch.batches(self.watch.committed())

    def _position(self, committed: int) -> int:
        if self.job.position is None or committed < 0:
            return committed + 1
        return self.job.position(self.checkpoint, committed)


def writer_of(job: Job, rows: DataFrame, output: Path, interval_s: float) -> DataStreamWriter:
    """Returns the query of a job up to its checkpoint and output mode. `rows`: what `job.stream` makes.

    `interval_s`: seconds from one batch start to the next; 0 means no pause.
    """
    writer = rows.writeStream.queryName(job.name)
    writer = writer.trigger(processingTime=f"{round(interval_s * 1000)} milliseconds")
    if job.sink is Sink.FILES:
        return writer.format("parquet").option("path", str(output))
    return writer.foreachBatch(_batch_folders(str(output)))


def _batch_folders(output: str) -> Callable[[DataFrame, int], None]:
    """Returns a sink that accepts a repeated batch."""

    def sink(rows: DataFrame, batch: int) -> None:
        rows.write.mode("overwrite").parquet(f"{output}/batch={batch}")

    return sink
