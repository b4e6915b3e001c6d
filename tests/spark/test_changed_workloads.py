"""The stateful map query of BTW 2019, NBQ5 and NBQ8, each changed in all ways while it runs: the output is exact."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import duckdb
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from query_evolution import (
    FileSink,
    Modifications,
    Outcome,
    Supervised,
    Trial,
    branch,
    promote,
    shadow,
    state_function,
    supervise,
)
from query_evolution.modify.ledger import View
from query_evolution.replace.core import Answer, End, Phase
from query_evolution.replace.folder import RestartFolder
from rhino.testing import LocalCluster
from tests.spark.conftest import SharedSession, wait_for
from workloads.mapquery.counting import Load
from workloads.mapquery.counting import job as map_query
from workloads.nexmark.jobs import job as nexmark_job
from workloads.nexmark.output import Verdict
from workloads.nexmark.queries import QUERIES
from workloads.nexmark.query import live
from workloads.nexmark.settings import BASE_MS
from workloads.nexmark.source import equal_sizes
from workloads.trial.job import Job, Sink
from workloads.trial.running import writer_of
from workloads.trial.whole import compare

# Parts of each story are in CI, with other queries: test_modify.py, test_supervise.py, test_shadow.py.
pytestmark = [pytest.mark.spark, pytest.mark.nightly, pytest.mark.timeout(900)]
TRIAL = Trial(batches=2, give_up_s=120, ask_s=120, rehearse_s=30)
BATCHES, EVENTS = 100, 400_000  # windows close in the batches of a shadow, too
POINT = "taken"
FAR = "ts > timestamp '2020-01-01 00:00:00'"  # the events that close all windows
Answers = Callable[[duckdb.DuckDBPyConnection], str]


@dataclass(frozen=True)
class Workload:
    """`change`: asks for a modification. `answer`: of the job if it counts from a batch on, from checkpoint and batch.

    It is taken when the change is in force: Spark deletes old entries of its logs.
    """

    job: Job
    change: Callable[[Modifications], View]
    answer: Callable[[Path, int], Answers]


def nexmark(name: str, stream: str, kept: str) -> Workload:
    """From a batch on, only persons or bids that are `kept` are taken. `stream`: "person" or "bid"."""
    query, sizes = QUERIES[name], equal_sizes(EVENTS, BATCHES)
    made = nexmark_job(query, query.generator, sizes)

    def marked(spark: SparkSession) -> DataFrame:
        streams = live(spark, query.generator, sizes, closed=query.windowed)
        rows: Callable[[], DataFrame] = getattr(streams, stream)

        def observed() -> DataFrame:
            return rows().observe(POINT, F.count(F.lit(1)).alias("rows"))

        return query.stream(replace(streams, person=observed) if stream == "person" else replace(streams, bid=observed))

    def answer(checkpoint: Path, first: int) -> Answers:
        since_ms = BASE_MS + sum(sizes[:first]) * query.generator.delay_us // 1000

        def filtered(db: duckdb.DuckDBPyConnection) -> str:
            sql = made.answer(db)
            (gone,) = db.execute(f"delete from {stream} where ts_ms >= {since_ms} and not ({kept})").fetchone() or (0,)
            assert gone > 0, "the filter lets all rows pass"
            return sql

        return filtered

    def change(changes: Modifications) -> View:
        return changes.set_filter(POINT, f"{kept} or {FAR}")

    return Workload(replace(made, stream=marked), change, answer)


def counting() -> Workload:
    """From a batch on, another function adds a million to each count. It goes on with the state of the former one."""
    load = Load(rate=200, seconds=150, instances=4)
    made = map_query(load)
    columns = "value bigint, instance bigint, ordinal bigint, created_ms bigint"

    def shifted(key: tuple[int], batches: Iterator[Any], state: Any) -> Iterator[Any]:
        import pandas as pd

        rows = pd.concat(list(batches)).sort_values("value")
        received = state.get[0] if state.exists else 0
        state.update((received + len(rows),))
        ordinals = range(1_000_000 + received + 1, 1_000_000 + received + len(rows) + 1)
        yield rows.assign(ordinal=ordinals)[["value", "instance", "ordinal", "created_ms"]]

    def change(changes: Modifications) -> View:
        return changes.replace_function("_count", state_function(shifted, columns))

    def answer(checkpoint: Path, first: int) -> Answers:
        assert made.position is not None
        since = made.position(checkpoint, first - 1) * load.rate
        assert 0 < since < load.rate * load.seconds, "the change counts neither from the start nor never"
        ordinal = f"ordinal + if(value >= {since}, 1000000, 0)"
        plain = "plain(value, instance, ordinal)"
        return lambda db: f"select value, instance, {ordinal} from ({made.answer(db)}) as {plain}"

    return Workload(made, change, answer)


WORKLOADS = {
    "mapquery": counting(),
    "nbq5": nexmark("nbq5", "bid", "auction % 2 = 0"),
    "nbq8": nexmark("nbq8", "person", "id % 2 = 0"),
}


@pytest.fixture
def spark(shared: SharedSession) -> Iterator[SparkSession]:
    with shared.with_settings({"spark.sql.shuffle.partitions": "4", "spark.sql.session.timeZone": "UTC"}) as session:
        yield session


class Story:
    """One query in `folder`, and its output, to which a branch of it writes later on."""

    def __init__(self, spark: SparkSession, job: Job, folder: Path) -> None:
        self.spark = spark
        self.job = job
        self.checkpoint = folder / "checkpoint"
        self.output = folder / "output"

    def committed(self) -> int:
        return max(RestartFolder(self.checkpoint).committed(), default=-1)

    def position(self) -> int:
        newest = self.committed()
        return newest + 1 if self.job.position is None or newest < 0 else self.job.position(self.checkpoint, newest)

    def begin(self, interval_s: float, batches: int = 3, **options: str) -> Supervised:
        """Starts the query, or takes it over, and returns when it has run `batches` batches."""
        writer = writer_of(self.job, self.job.stream(self.spark), self.output, interval_s).options(**options)
        begun = supervise(writer, str(self.checkpoint), output_mode=self.job.sink.output_mode, trial=TRIAL)
        wait_for(lambda: begun.phase in (Phase.RUNNING, Phase.DONE), "it has the query", timeout_s=180)
        goal = self.committed() + batches
        self.wait(begun, lambda: self.committed() >= goal)
        return begun

    def wait(self, running: Supervised, reached: Callable[[], bool]) -> None:
        def over() -> bool:
            if running.phase is Phase.DONE:
                running.wait()
                raise AssertionError("the query has ended")
            return reached()

        wait_for(over, f"{self.job.name}: the next batches", timeout_s=400)

    def live_output(self) -> Any:
        if self.job.sink is Sink.FILES:
            return FileSink(self.output)
        folder = str(self.output)
        return lambda spark, batch: spark.read.parquet(f"{folder}/batch={batch}")


@pytest.mark.parametrize("name", WORKLOADS)
def test_a_workload_is_changed_restarted_shadowed_and_promoted(
    cluster: LocalCluster, spark: SparkSession, tmp_path: Path, name: str
) -> None:
    workload = WORKLOADS[name]
    story = Story(spark, workload.job, tmp_path)
    first = story.begin(1.0)

    # ---- a modification, which stays in force until the end
    changes = Modifications(story.checkpoint)
    view = changes.wait(workload.change(changes).record.number)
    assert view.state == "in_force", view.reason
    assert view.first_batch is not None
    expected = replace(story.job, answer=workload.answer(story.checkpoint, view.first_batch))

    # ---- a supervised restart with another trigger, and other options of the sink
    second = story.begin(1.5, compression="gzip")
    assert first.wait(60) is Outcome.REPLACED
    (restart,) = RestartFolder(story.checkpoint).read()
    assert (restart.answer, restart.end) == (Answer.PARKED, End.CONFIRMED)

    # ---- a branch that follows, agrees, and takes the place of the query
    next_one = tmp_path / "next"
    made = branch(cluster.manager, story.checkpoint, next_one)
    rows = story.job.stream(spark)
    report = shadow(rows, story.checkpoint, next_one, story.live_output(), batches=5)
    assert [one.batch for one in report.batches] == [*range(made.batch + 1, made.batch + 6)]
    second.stop()
    if story.job.position is None:  # the map query's source goes on by the clock
        assert story.position() < story.job.goal, "the workload has ended before all that was to be done to it"
    report = shadow(rows, story.checkpoint, next_one, story.live_output(), idle_s=0.5)
    assert report.agrees, report
    assert sum(one.live_rows for one in report.batches) > 0
    last = story.committed()
    assert promote(cluster.manager, story.checkpoint, next_one, "branch").batch == last
    story.checkpoint = next_one
    third = story.begin(0)
    story.wait(third, lambda: story.position() >= story.job.goal)
    third.stop()
    verdict = compare(expected, story.output, story.committed())
    assert verdict == Verdict(verdict.rows, missing=0, extra=0)
    assert verdict.rows > 1000
