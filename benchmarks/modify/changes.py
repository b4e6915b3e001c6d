"""Changes of one running query."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from pyspark.sql import SparkSession

from benchmarks.modify.loads import LOADS
from query_evolution import Modifications
from query_evolution.modify.ledger import State, View
from rhino.testing import LocalCluster
from rhino.testing.query_watch import Batch, QueryWatch, RunError

WARM_UP = 30  # batches before the first change: JIT compilers, Python workers
BETWEEN = 12  # batches between two changes
STEADY = 10  # batches before a change, with which its first batch is compared
PHASES = 5  # a change comes in another part of a batch each time
QUERY = "changed"


@dataclass(frozen=True, slots=True)
class Changed:
    """One change. All times are milliseconds.

    `wait_ms`: from the call to the start of the first batch in force. `done_ms`: to the end of this batch. `switch_ms`:
    the time of this batch. `steady_ms`: the median of the batches before. `skipped`: batches begun between the call and
    the first batch in force, so 0 if it is in force with the next batch. `before_ms`: the time of the batch before. A
    change is checked and compiled beside it. `pause_ms`: from its end to the start of the first batch in force.
    `every_ms`: the trigger begins a batch so often; 0: without pauses.
    """

    load: str
    change: int
    called_ms: int
    first_batch: int
    wait_ms: float
    done_ms: float
    switch_ms: float
    steady_ms: float
    skipped: int
    before_ms: float
    pause_ms: float
    every_ms: int = 0

    @property
    def ratio(self) -> float:
        return self.switch_ms / self.steady_ms

    @property
    def in_time(self) -> bool:
        """Not later than one batch, or the time from one to the next, and 0.2 s."""
        return self.wait_ms <= max(self.steady_ms, self.every_ms) + 200


@contextmanager
def running(
    spark: SparkSession, cluster: LocalCluster, load: str, rows_per_batch: int, checkpoint: Path, every_ms: int = 0
) -> Iterator[QueryWatch]:
    """The query. Its trigger begins a batch every `every_ms`, or with 0 as soon as the former one has ended."""
    its = LOADS[load]
    query = (
        its.stream(spark, rows_per_batch)
        .writeStream.queryName(QUERY)
        .outputMode(its.mode)
        .format("noop")
        .trigger(processingTime=f"{every_ms} milliseconds")
        .option("checkpointLocation", str(checkpoint))
        .start()
    )
    try:
        yield QueryWatch(query, checkpoint, on_poll=lambda batch: None, check=cluster.check)
    finally:
        query.stop()


def change(
    watch: QueryWatch, load: str, checkpoint: Path, changes: int, say: Callable[[str], None], plan: tuple[int, int]
) -> tuple[list[Changed], list[Batch]]:
    """Changes the query so often. Returns the figures of the changes, and all batches. Raises RunError.

    `plan`: the trigger begins a batch every so many ms, and the number of the round. It moves the phases.
    """
    every_ms, round_number = plan
    say(f"{load}: warming up")
    watch.wait_for_batch(WARM_UP)
    ledger, called = Modifications(checkpoint), list[tuple[int, View]]()
    for number in range(1, changes + 1):
        say(f"{load}: change {number} of {changes}")
        newest = watch.committed()
        watch.wait_for_batch(newest + BETWEEN)
        period_ms = max(every_ms, _steady(watch.batches(newest + BETWEEN)))
        time.sleep(period_ms / 1000 * ((number + round_number - 1) % PHASES) / PHASES)
        at_ms = time.time_ns() // 1_000_000
        view = ledger.wait(LOADS[load].change(ledger, number).record.number)
        if view.state is not State.IN_FORCE or view.first_batch is None:
            raise RunError(f"{load}: change {number} is {view.state}: {view.reason}")
        called.append((at_ms, view))
    last = called[-1][1].first_batch or 0
    watch.wait_for_batch(last + BETWEEN)
    batches = watch.batches(last + BETWEEN)
    found = [_changed(load, number, at_ms, view, batches) for number, (at_ms, view) in enumerate(called, 1)]
    return [replace(one, every_ms=every_ms) for one in found], batches


def _changed(load: str, number: int, called_ms: int, view: View, batches: list[Batch]) -> Changed:
    first = view.first_batch or 0
    (its,) = (batch for batch in batches if batch.batch_id == first)
    steady_ms = _steady([batch for batch in batches if batch.batch_id < first])
    wait_ms, done_ms = its.started_ms - called_ms, its.ended_ms - called_ms
    skipped = sum(called_ms <= batch.started_ms < its.started_ms for batch in batches)
    (before,) = (batch for batch in batches if batch.batch_id == first - 1)
    return Changed(
        *(load, number, called_ms, first, wait_ms, done_ms, its.duration_ms, steady_ms, skipped),
        *(before.duration_ms, its.started_ms - before.ended_ms),
    )


def _steady(batches: list[Batch]) -> float:
    return statistics.median(batch.duration_ms for batch in batches[-STEADY:])
