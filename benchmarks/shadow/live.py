"""The live query with a sink that keeps batches apart, and a shadow beside it for a while."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from benchmarks.applications import application
from benchmarks.stateful import QUERY_NAME, Running, stream
from rhino import HandoverClient
from rhino.testing.query_watch import Batch, QueryWatch, RunError
from rhino_core.errors import PreconditionError

APPLICATION = "benchmarks.shadow.application"
STEADY = 10  # batches without a shadow, before it and after it
WARM_UP = 4  # first batches of a shadow, which do not count
WAIT_S = 300.0


@dataclass(frozen=True, slots=True)
class Beside:
    """One shadow. `without_ms`: the median of batches before and after it. `with_ms`: of those while it ran batches.

    `shadow_ms`: from one commit of the shadow to the next, the median. `first_late_ms`, `last_late_ms`: from the end of
    its first and of its last batch in the live query to its own commit of that batch. It is late from the start,
    because its first batches are slow. `behind`: batches that the live query has run when the shadow has run its last
    one.
    """

    state_bytes: int
    interval_ms: int
    shadow: int
    without_ms: float
    with_ms: float
    batches: int
    shadow_ms: float
    first_late_ms: float
    last_late_ms: float
    behind: int

    @property
    def ratio(self) -> float:
        return self.with_ms / self.without_ms

    @property
    def growth_ms(self) -> float:
        """By how much the shadow is later with each batch."""
        return (self.last_late_ms - self.first_late_ms) / (self.batches - 1)


@dataclass(frozen=True, slots=True)
class Made:
    """A branch. `batch`: the last batch of the live query that it has. `job`: its id at the manager."""

    batch: int
    job: str

    def write(self, branch: Path) -> None:
        """Beside the branch, for the process that waits for it."""
        part = branch.with_suffix(".part")
        part.write_text(f"{self.batch} {self.job}")
        part.rename(branch.with_suffix(".made"))

    @classmethod
    def read(cls, branch: Path) -> Made | None:
        """None as long as there is none."""
        path = branch.with_suffix(".made")
        if not path.exists():
            return None
        batch, job = path.read_text().split()
        return cls(int(batch), job)


def written(output: Path) -> Callable[[SparkSession, int], DataFrame]:
    """Returns a reader of the output of a batch, for `shadow`."""
    return lambda spark, batch: spark.read.parquet(f"{output}/{batch}")


@contextmanager
def live(run: Running, output: Path, interval_ms: int) -> Iterator[None]:
    """The query goes on with a batch each `interval_ms`, whose output is a folder in `output`."""
    folder = str(output)

    def sink(rows: DataFrame, batch: int) -> None:
        rows.write.mode("overwrite").parquet(f"{folder}/{batch}")

    run.query.stop()
    writer = stream(run.spark, run.load).writeStream.queryName(QUERY_NAME).outputMode("update").foreachBatch(sink)
    writer = writer.trigger(processingTime=f"{interval_ms} milliseconds")
    run.query = writer.option("checkpointLocation", str(run.checkpoint)).start()
    run.watch = QueryWatch(run.query, run.checkpoint, on_poll=lambda committed: None, check=run.cluster.check)
    run.watch.wait_for_batch(run.watch.committed() + STEADY)
    yield
    run.query.stop()


def beside(run: Running, output: Path, target: Path, interval_ms: int, number: int, batches: int) -> Beside:
    """Runs a shadow on the new branch `target`, of which `batches` batches count.

    Its process makes the branch when its session is open: until then, the live query may forget the batches that the
    shadow has to follow. Raises RunError if its output is not that of the live query.
    """
    run.watch.wait_for_batch(run.watch.committed() + STEADY)
    began_ms = time.time() * 1000
    places = (str(run.checkpoint), str(target), str(output))
    arguments = (run.cluster.manager, str(run.load.state_bytes), *places, str(WARM_UP + batches))
    with application(run, APPLICATION, *arguments) as other:
        run.watch.wait_for(lambda: Made.read(target) is not None or not other.running)
        if (made := Made.read(target)) is None:
            raise RunError(f"the shadow {other.outcome(WAIT_S)}")
        first, last = made.batch + 1 + WARM_UP, made.batch + WARM_UP + batches
        run.watch.wait_for(lambda: _committed(target, last) or not other.running)
        if (outcome := other.outcome(WAIT_S)) != "agrees":
            raise RunError(f"the shadow {outcome}")
    ended_ms = time.time() * 1000
    run.watch.wait_for_batch(run.watch.committed() + STEADY + 1)
    done = run.watch.batches(run.watch.committed())
    commits = [(target / "commits" / str(batch)).stat().st_mtime * 1000 for batch in range(first, last + 1)]
    _forget(run, made.job)
    without_ms, with_ms = costs(done, (began_ms, ended_ms), (commits[0], commits[-1]))
    late = lateness(done, first, commits)
    return Beside(run.load.state_bytes, interval_ms, number, without_ms, with_ms, batches, *late)


def costs(done: Sequence[Batch], process: tuple[float, float], shadow: tuple[float, float]) -> tuple[float, float]:
    """Returns the medians of live batches without and with a shadow, in milliseconds.

    `process`: when the process was started, and when it had ended. `shadow`: its first and last commit.
    Batches between the two do not count: processes start and end then.
    """
    before = [batch.duration_ms for batch in done if batch.ended_ms <= process[0]][-STEADY:]
    after = [batch.duration_ms for batch in done if batch.started_ms >= process[1]][:STEADY]
    beside = [batch.duration_ms for batch in done if batch.started_ms < shadow[1] and batch.ended_ms > shadow[0]]
    return float(statistics.median(before + after)), float(statistics.median(beside))


def lateness(done: Sequence[Batch], first: int, commits: Sequence[float]) -> tuple[float, float, float, int]:
    """Returns `shadow_ms`, `first_late_ms`, `last_late_ms` and `behind` of `Beside`.

    `commits`: when the shadow has committed the batches from `first` on, in milliseconds of the wall clock.
    """
    ended = {batch.batch_id: batch.ended_ms for batch in done}
    last = first + len(commits) - 1
    steps = [later - earlier for earlier, later in pairwise(commits)]
    behind = sum(batch > last and moment <= commits[-1] for batch, moment in ended.items())
    return statistics.median(steps), commits[0] - ended[first], commits[-1] - ended[last], behind


def _committed(checkpoint: Path, batch: int) -> bool:
    return (checkpoint / "commits" / str(batch)).exists()


def _forget(run: Running, job: str) -> None:
    """Its state goes as soon as the manager knows that its driver has ended and does not come back."""
    deadline = time.monotonic() + WAIT_S
    with HandoverClient(run.cluster.manager) as client:
        for _ in run.watch.polls():
            try:
                client.forget_job(job, now=True)
            except PreconditionError:
                if time.monotonic() > deadline:
                    raise
            else:
                return
