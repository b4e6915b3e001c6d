"""Follows a streaming query: batches in its commit log, their durations, and the executors known to its driver."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from rhino_core.errors import RhinoError

POLL_S = 0.02
STALL_S = 90.0  # after so long without a new batch the query counts as hanging


class RunError(RhinoError):
    """A run on a test cluster failed, or its result is wrong."""


@dataclass(frozen=True, slots=True)
class Batch:
    """One micro-batch. Times are wall clock in milliseconds since the epoch."""

    batch_id: int
    started_ms: int
    duration_ms: int

    @property
    def ended_ms(self) -> int:
        return self.started_ms + self.duration_ms


class QueryWatch:
    """Follows one running query by its commit log, because only a logged batch is complete."""

    def __init__(
        self, query: StreamingQuery, checkpoint: Path, *, on_poll: Callable[[int], None], check: Callable[[], None]
    ) -> None:
        """`on_poll(committed)` is called at every poll. `check()` raises an error when the cluster is broken."""
        self._query = query
        self._commits = checkpoint / "commits"
        self._on_poll = on_poll
        self._check = check

    def committed(self) -> int:
        """Id of the newest batch in the commit log, or -1."""
        if not self._commits.exists():
            return -1
        return max((int(p.name) for p in self._commits.iterdir() if p.name.isdigit()), default=-1)

    def polls(self) -> Iterator[int]:
        """Yields the newest committed batch at each poll. Raises RunError when the query fails or hangs."""
        newest, since = -1, time.monotonic()
        while True:
            committed = self.committed()
            if committed > newest:
                newest, since = committed, time.monotonic()
            self._on_poll(committed)
            yield committed
            if (error := self._query.exception()) is not None:
                raise RunError(f"the query failed: {error}")
            self._check()
            if time.monotonic() - since > STALL_S:
                raise RunError(f"no batch after {newest} was committed within {STALL_S:g} s; Spark: {self._doing()}")
            time.sleep(POLL_S)

    def _doing(self) -> str:
        """The query's status, as Spark reports it."""
        status: dict[str, object] = self._query.status
        busy = "a trigger runs" if status["isTriggerActive"] else "no trigger runs"
        data = "there is new data" if status["isDataAvailable"] else "no new data"
        return f"{status['message']}, {busy}, {data}"

    def wait_for_batch(self, batch_id: int) -> None:
        """Blocks until `batch_id` is in the commit log. Raises as `polls`."""
        for committed in self.polls():
            if committed >= batch_id:
                return

    def wait_for(self, condition: Callable[[], bool]) -> None:
        """Blocks until `condition()` is true. Raises as `polls`."""
        for _ in self.polls():
            if condition():
                return

    def batches(self, last: int) -> list[Batch]:
        """Returns the batches up to `last` from their progress events. These arrive shortly after the commit."""
        self.wait_for(lambda: any(p["batchId"] >= last for p in self._query.recentProgress))
        found = [
            Batch(p["batchId"], _milliseconds(p["timestamp"]), p["durationMs"]["triggerExecution"])
            for p in self._query.recentProgress
            if "addBatch" in p["durationMs"]  # other events only report that no batch ran
        ]
        return sorted((b for b in found if b.batch_id <= last), key=lambda b: b.batch_id)

    def dropped_rows(self) -> int:
        """Number of rows too late for the watermark, and therefore missing in the output."""
        return sum(s["numRowsDroppedByWatermark"] for p in self._query.recentProgress for s in p["stateOperators"])


def _milliseconds(timestamp: str) -> int:
    """Parses Spark's "2026-01-31T12:00:00.123Z"."""
    return round(datetime.fromisoformat(timestamp.replace("Z", "+00:00")).timestamp() * 1000)


def driver_hosts(spark: SparkSession) -> set[str]:
    """Hosts with an executor, as the driver's scheduler knows them now. Includes the driver's own host."""
    infos = spark.sparkContext._jsc.sc().statusTracker().getExecutorInfos()
    return {str(info.host()) for info in infos}
