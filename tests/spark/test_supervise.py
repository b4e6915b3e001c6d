"""Other code takes over a running query between two batches: state and output exact, or the former code goes on."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import groupby
from pathlib import Path

import pytest
from pyspark.errors import IllegalArgumentException
from pyspark.sql import DataFrame, SparkSession

from query_evolution import Outcome, Supervised, supervise
from query_evolution.replace.core import Answer, End, Phase
from query_evolution.replace.folder import RestartFolder
from query_evolution.replace.rehearsal import rehearse
from rhino import HandoverClient
from rhino.testing import LocalCluster
from rhino_core.errors import PreconditionError
from spark_connector.query_checkpoint import QueryCheckpoint
from tests.spark.conftest import SharedSession, wait_for
from tests.spark.queries import QUERIES, join, source
from tests.spark.run import Run, assert_same_rows
from tests.spark.supervised import SILENT_S, TRIAL, expected, result, scored, start, totals, versions

pytestmark = [pytest.mark.spark, pytest.mark.timeout(420)]
SETTINGS = {"spark.sql.shuffle.partitions": "2"}
ROOT = Path(__file__).parents[2]


@pytest.fixture
def spark(shared: SharedSession) -> Iterator[SparkSession]:
    with shared.with_settings(SETTINGS) as session:
        yield session


class Story:
    """One query in `folder`, and those that run it."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark = spark
        self.folder = folder
        self.restarts = RestartFolder(folder / "checkpoint")

    @property
    def logged(self) -> int:
        return max(self.restarts.committed(), default=-1) + 1

    def advance(self, batches: int = 2) -> None:
        goal = self.logged + batches
        wait_for(lambda: self.logged >= goal, f"batch {goal}")

    def begin(self, version: str) -> Supervised:
        """Starts a version of the code, and waits until it has the query."""
        begun = start(self.spark, self.folder, version)
        wait_for(lambda: begun.phase in (Phase.RUNNING, Phase.DONE), f"{version} runs")
        self.advance()
        return begun

    def check(self, *wanted: str) -> None:
        """The versions have run in this order, each batch once, and the output is that of a batch computation."""
        ran = versions(self.spark, self.folder, self.logged)
        assert [version for version, _ in groupby(ran[batch] for batch in sorted(ran))] == [*wanted]
        assert_same_rows(result(self.spark, self.folder, len(ran)), expected(self.spark, ran))


def more_operators(rows: DataFrame) -> DataFrame:
    return totals(rows.dropDuplicates(["k", "y"]))


def test_code_is_replaced_in_the_same_driver_and_comes_back_if_the_new_one_fails(
    spark: SparkSession, tmp_path: Path
) -> None:
    story = Story(spark, tmp_path)
    first = story.begin("plus")
    assert first.query is not None
    second = story.begin("triple")
    assert first.wait(60) is Outcome.REPLACED
    (granted,) = story.restarts.read()
    assert (granted.answer, granted.end) == (Answer.PARKED, End.CONFIRMED)

    # ---- other operators are refused before anything is asked
    refused = start(spark, tmp_path, "minus", more_operators)
    with pytest.raises(PreconditionError, match=r"it has 2, and the checkpoint 1.*`rhino restructure`"):
        refused.wait(60)
    assert len(story.restarts.read()) == 1

    # ---- the new code fails in its first batch: the former one runs that batch
    failing = start(spark, tmp_path, "fails")
    with pytest.raises(PreconditionError, match=r"(?s)the former one goes on: .*no room for these rows"):
        failing.wait(120)
    wait_for(lambda: second.phase is Phase.RUNNING, "the former code goes on")
    returned = story.restarts.read()[-1]
    assert (returned.answer, returned.end, "no room for" in returned.reason) == (Answer.PARKED, End.RETURNED, True)
    story.advance()
    second.stop()
    assert second.wait() is Outcome.STOPPED
    story.check("plus", "triple")
    assert not [*story.restarts.rehearsals.iterdir()]

    # ---- a query that nobody supervises has the right to run while it runs, and cannot give it away
    plain = totals(scored("plus", source(spark))).writeStream.format("noop").outputMode("update")
    running = plain.option("checkpointLocation", f"{tmp_path}/checkpoint").start()
    wait_for(story.restarts.owned, "it has the right to run")
    with pytest.raises(PreconditionError, match=r"was started by start\(\): stop it"):
        start(spark, tmp_path, "minus").wait(60)
    running.stop()
    wait_for(lambda: not story.restarts.owned(), "it has let go")


def test_a_query_stopped_by_others_keeps_the_right_until_its_batch_has_ended(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Its function still writes when Spark calls it inactive."""
    entered, may = threading.Event(), threading.Event()

    def sink(rows: DataFrame, batch_id: int) -> None:
        rows.count()
        entered.set()
        may.wait(120)

    writer = totals(scored("plus", source(spark))).writeStream.foreachBatch(sink)
    running = supervise(writer, f"{tmp_path}/checkpoint", output_mode="update")
    restarts = RestartFolder(tmp_path / "checkpoint")
    assert entered.wait(120)
    query = running.query
    assert query is not None
    stopping = threading.Thread(target=query.stop)
    stopping.start()
    wait_for(lambda: not query.isActive, "Spark calls it inactive")
    assert running.wait(1) is None
    assert restarts.owned()
    may.set()
    assert running.wait(120) is Outcome.STOPPED
    assert not restarts.owned()
    stopping.join()


@pytest.mark.nightly
@pytest.mark.parametrize(
    "state_format",
    sorted({QUERIES["join4"].state_format, 3}),  # the default: 4, with Spark 4.2: 3
)
def test_joins_with_schema_files_of_their_own_are_compared_before_anything_is_asked(
    spark: SparkSession, tmp_path: Path, state_format: int
) -> None:
    query = replace(QUERIES["join4"], state_format=state_format)
    run = Run(spark, query, tmp_path)
    running = run.start()
    run.advance(running, 1)
    assert [*run.checkpoint.glob("state/0/_metadata/v2/*")]

    def rehearsed(rows: DataFrame) -> None:
        rehearse(rows, run.checkpoint, output_mode=query.output_mode, first_batch_s=0)

    rehearsed(query.stream(spark).where("a < b"))
    with pytest.raises(PreconditionError, match=r"(?s)operator 0: .*in the state is .*`rhino restructure`"):
        rehearsed(join(source(spark).selectExpr("cast(value as double) as value"), source(spark)))
    with pytest.raises(PreconditionError, match="it has 2, and the checkpoint 1"):
        rehearsed(query.stream(spark).dropDuplicates(["a", "b"]))
    run.advance(running, 1)
    running.stop()


class Other:
    """A version in a process of its own, on the host of a worker."""

    def __init__(
        self,
        cluster: LocalCluster,
        story: Story,
        version: str,
        failpoint: str = "",
        worker: int = 0,
        *,
        standby: bool = False,
    ) -> None:
        host = cluster.workers[worker].host
        local = {"spark.master": "local[2]", "spark.driver.host": host, "spark.driver.bindAddress": host}
        conf = cluster.conf(version, SETTINGS | local)
        command = [sys.executable, "-m", "tests.spark.supervised_app", json.dumps(conf), str(story.folder), version]
        command.append("standby" * standby)
        environment = os.environ | {"RHINO_FAILPOINTS": failpoint}
        self.process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True)

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().rstrip()

    @property
    def halted(self) -> bool:
        """Whether it was stopped by SIGSTOP. Its JVM goes on."""
        return "\nState:\tT" in Path(f"/proc/{self.process.pid}/status").read_text()

    def kill(self) -> None:
        """kill -9 of this process. Its JVM ends with it."""
        self.process.kill()
        self.process.wait()


@pytest.mark.nightly
def test_code_is_replaced_by_another_process(cluster: LocalCluster, spark: SparkSession, tmp_path: Path) -> None:
    story = Story(spark, tmp_path)
    first = story.begin("plus")
    job = QueryCheckpoint(tmp_path / "checkpoint").job
    stores = cluster.folder.glob(f"worker-*/rhino/store/{job}/0/*/default/*.changelog")
    newest = max(stores, key=lambda file: int(file.name.partition("_")[0]))  # a former member has older versions
    with_state = newest.relative_to(cluster.folder).parts[0]
    with HandoverClient(cluster.manager) as client:
        known = {seen.job for seen in client.jobs()}
    other = Other(cluster, story, "triple", worker=[worker.worker_id for worker in cluster.workers].index(with_state))
    try:
        assert other.line().startswith("jvm ")
        assert first.wait(180) is Outcome.REPLACED
        assert not [*story.restarts.rehearsals.iterdir()]
        (log,) = tmp_path.glob("driver-triple-*.log")
        assert len(re.findall(rf"Rhino loaded {job}/\S+ once to warm up", log.read_text())) == 1
        with HandoverClient(cluster.manager) as client:
            assert {seen.job for seen in client.jobs()} <= known  # no rehearsal is a job
        # A query that is started without `supervise` is refused while another process has it.
        plain = totals(scored("plus", source(spark))).writeStream.format("noop").outputMode("update")
        with pytest.raises(IllegalArgumentException, match="another process runs the query"):
            plain.option("checkpointLocation", f"{tmp_path}/checkpoint").start()
        story.advance()
        other.kill()
        wait_for(lambda: not story.restarts.owned(), "its JVM has ended")
        story.check("plus", "triple")
    finally:
        other.kill()


KILLS = [f"restart.{step}.{when}" for step in ("request", "end") for when in ("before", "after")]


@pytest.mark.nightly
@pytest.mark.parametrize("point", KILLS)
def test_the_new_driver_is_killed(cluster: LocalCluster, spark: SparkSession, tmp_path: Path, point: str) -> None:
    """Starts a driver for each case. The former code goes on, unless the new one was confirmed."""
    story = Story(spark, tmp_path)
    first = story.begin("plus")
    other = Other(cluster, story, "triple", f"{point}=kill")
    try:
        assert other.line().startswith("jvm ")
        assert other.process.wait(180) == -9
        if point == "restart.end.after":
            assert first.wait(60) is Outcome.REPLACED
            last = story.begin("minus")  # nobody runs it any more, so there is no trial
            last.stop()
            story.check("plus", "triple", "minus")
        else:
            wait_for(lambda: first.phase is Phase.RUNNING, "the former code goes on")
            story.advance()
            first.stop()
            story.check("plus", *(["triple", "plus"] if point == "restart.end.before" else []))
    finally:
        other.kill()


@pytest.mark.nightly
@pytest.mark.parametrize("point", ["restart.answer.before", "restart.answer.after"])
def test_the_former_driver_is_killed(cluster: LocalCluster, spark: SparkSession, tmp_path: Path, point: str) -> None:
    """The new code has the query. It is confirmed, or did not need to be."""
    story = Story(spark, tmp_path)
    other = Other(cluster, story, "plus", f"{point}=kill")
    try:
        assert other.line().startswith("jvm ")
        wait_for(lambda: story.logged >= 2, "two batches", timeout_s=180)
        second = story.begin("triple")
        assert other.process.wait(60) == -9
        assert second.phase is Phase.RUNNING
        answers = [r.answer for r in story.restarts.read()]
        assert answers == [Answer.WITHDRAWN if point == "restart.answer.before" else Answer.PARKED]
        second.stop()
        story.check("plus", "triple")
    finally:
        other.kill()


@pytest.mark.nightly
def test_a_standby_takes_over_from_a_killed_driver(cluster: LocalCluster, spark: SparkSession, tmp_path: Path) -> None:
    story = Story(spark, tmp_path)
    other = Other(cluster, story, "plus")
    try:
        assert other.line().startswith("jvm ")
        wait_for(lambda: story.logged >= 2, "two batches", timeout_s=180)
        waiting = start(spark, tmp_path, "plus", standby=True)
        wait_for(lambda: waiting.phase is Phase.BLOCKED, "it waits")
        wait_for(lambda: waiting.rehearsed, "it has rehearsed", timeout_s=120)
        story.advance()
        assert waiting.query is None
        other.kill()
        killed_at = time.monotonic()
        known = story.logged
        wait_for(lambda: story.logged > known, "the standby runs the query")
        print(f"next batch {time.monotonic() - killed_at:.2f} s after the kill of the driver")
        story.advance()
        assert waiting.phase is Phase.RUNNING
        waiting.stop()
        assert waiting.wait() is Outcome.STOPPED
        story.check("plus")
        assert not story.restarts.read(), "nobody was asked"
    finally:
        other.kill()


@pytest.mark.nightly
@pytest.mark.parametrize("where", ["here", "elsewhere"])
def test_a_standby_takes_over_from_a_driver_that_hangs(
    cluster: LocalCluster, spark: SparkSession, tmp_path: Path, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its JVM is stopped in the middle of anything. On this machine it is killed. Elsewhere it goes on some time."""
    if where == "elsewhere":
        monkeypatch.setattr(RestartFolder, "owner_here", lambda folder: None)
    story = Story(spark, tmp_path)
    other = Other(cluster, story, "once")
    try:
        jvm = int(other.line().removeprefix("jvm "))
        wait_for(lambda: story.logged >= 2, "two batches", timeout_s=180)
        waiting = start(spark, tmp_path, "once", trial=replace(TRIAL, silent_s=SILENT_S), standby=True)
        wait_for(lambda: waiting.rehearsed, "it has rehearsed", timeout_s=120)
        story.advance()
        assert waiting.query is None
        os.kill(jvm, signal.SIGSTOP)
        known = story.logged
        wait_for(lambda: story.logged > known + 1, "the standby runs the query", timeout_s=120)
        if where == "elsewhere":
            os.kill(jvm, signal.SIGCONT)
        assert other.line().startswith("failed "), "it must end"
        story.advance()
        assert waiting.phase is Phase.RUNNING
        waiting.stop()
        assert waiting.wait() is Outcome.STOPPED
        story.check("once")
    finally:
        other.kill()


WRITTEN = "output.written"  # not a failpoint: the sink of the first batch stops the standby
TAKEOVER = ["restart.start.before", "restart.start.after", WRITTEN]
SILENT_TAKEOVER = ["restart.take_over.before", "restart.take_over.after"]


@pytest.mark.nightly
@pytest.mark.parametrize("point", [*TAKEOVER, *SILENT_TAKEOVER])
def test_a_standby_is_killed_while_it_takes_over(
    cluster: LocalCluster, spark: SparkSession, tmp_path: Path, point: str
) -> None:
    """The driver dies or hangs, its standby stops at a point of the takeover and dies, and the next one goes on."""
    story = Story(spark, tmp_path)
    driver = Other(cluster, story, "plus")
    others = [driver]
    try:
        jvm = int(driver.line().removeprefix("jvm "))
        wait_for(lambda: story.logged >= 2, "two batches", timeout_s=180)
        version, failpoint = ("halts", "") if point == WRITTEN else ("plus", f"{point}=stop")
        standby = Other(cluster, story, version, failpoint, standby=True)
        others.append(standby)
        assert standby.line().startswith("jvm ")
        assert standby.line() == "ready"
        story.advance()
        if point in TAKEOVER:
            driver.kill()
        else:
            os.kill(jvm, signal.SIGSTOP)
        wait_for(lambda: standby.halted, f"the standby stops at {point}", timeout_s=60)
        logged = story.logged
        last = start(spark, tmp_path, "plus", trial=replace(TRIAL, silent_s=SILENT_S), standby=True)
        if point == "restart.take_over.after":  # the driver has ended, and nobody has the right
            wait_for(lambda: last.phase is Phase.RUNNING, "the last one takes it")
        else:
            wait_for(lambda: last.phase is Phase.BLOCKED, "the last one waits")
            assert story.restarts.owned()
            assert story.logged == logged
        standby.kill()
        wait_for(lambda: story.logged > logged, "the last one runs the query", timeout_s=120)
        story.advance()
        assert last.phase is Phase.RUNNING
        last.stop()
        assert last.wait() is Outcome.STOPPED
        story.check("plus")
        assert not story.restarts.read(), "nobody was asked"
    finally:
        for other in others:
            other.kill()
