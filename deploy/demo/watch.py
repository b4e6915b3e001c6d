"""Sees how far a streaming query is: batches in its commit log, their durations, executors that its driver knows."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from rhino.errors import RhinoError

POLL_S = 0.02
STALL_S = 90.0  # a batch that takes longer means that the query hangs


class DemoError(RhinoError):
    """The demo could not be carried out, or its outcome is wrong."""


@dataclass(frozen=True, slots=True)
class Batch:
    """One micro-batch; wall clock in milliseconds since the epoch."""

    batch_id: int
    started_ms: int
    duration_ms: int

    @property
    def ended_ms(self) -> int:
        return self.started_ms + self.duration_ms


class QueryWatch:
    """Follows one running query by its commit log: only that says that a batch is done."""

    def __init__(
        self, query: StreamingQuery, checkpoint: Path, *, on_poll: Callable[[int], None], check: Callable[[], None]
    ) -> None:
        """`on_poll(committed)` is called at every poll; `check()` raises when the cluster is broken."""
        self._query = query
        self._commits = checkpoint / "commits"
        self._on_poll = on_poll
        self._check = check

    def committed(self) -> int:
        """Id of the newest batch in the commit log; -1 before the first."""
        if not self._commits.exists():
            return -1
        return max((int(p.name) for p in self._commits.iterdir() if p.name.isdigit()), default=-1)

    def polls(self) -> Iterator[int]:
        """The newest committed batch, again and again. DemoError when the query fails or stalls."""
        newest, since = -1, time.monotonic()
        while True:
            committed = self.committed()
            if committed > newest:
                newest, since = committed, time.monotonic()
            self._on_poll(committed)
            yield committed
            if (error := self._query.exception()) is not None:
                raise DemoError(f"the query failed: {error}")
            self._check()
            if time.monotonic() - since > STALL_S:
                raise DemoError(f"no batch after {newest} was committed within {STALL_S:g} s")
            time.sleep(POLL_S)

    def wait_for_batch(self, batch_id: int) -> None:
        """Returns as soon as `batch_id` is in the commit log."""
        for committed in self.polls():
            if committed >= batch_id:
                return

    def wait_for(self, condition: Callable[[], bool]) -> None:
        """Returns as soon as `condition` holds."""
        for _ in self.polls():
            if condition():
                return

    def batches(self, last: int) -> list[Batch]:
        """Batches up to `last` by their progress events, which arrive a moment after the commit."""
        self.wait_for(lambda: any(p["batchId"] >= last for p in self._query.recentProgress))
        found = [
            Batch(p["batchId"], _milliseconds(p["timestamp"]), p["durationMs"]["triggerExecution"])
            for p in self._query.recentProgress
            if "addBatch" in p["durationMs"]  # others only report that nothing happened
        ]
        return sorted((b for b in found if b.batch_id <= last), key=lambda b: b.batch_id)

    def dropped_rows(self) -> int:
        """Rows that were too late for the watermark; they would be missing in the output."""
        return sum(s["numRowsDroppedByWatermark"] for p in self._query.recentProgress for s in p["stateOperators"])


def _milliseconds(timestamp: str) -> int:
    """From Spark's "2026-01-31T12:00:00.123Z"."""
    return round(datetime.fromisoformat(timestamp.replace("Z", "+00:00")).timestamp() * 1000)


def driver_hosts(spark: SparkSession) -> set[str]:
    """Hosts with an executor, as the driver's scheduler knows them now (the driver's own included)."""
    infos = spark.sparkContext._jsc.sc().statusTracker().getExecutorInfos()
    return {str(info.host()) for info in infos}
