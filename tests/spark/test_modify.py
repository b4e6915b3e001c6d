"""Running queries are modified: same run, exact state, one version for each batch, through a killed driver as well."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import BooleanType, LongType

from rhino import Canary, Modifications, processor_function, rhino_checkpoint, state_function
from rhino.testing import LocalCluster
from spark_connector.conf import SPARK_PROVIDER, STREAMING
from spark_connector.modify.ledger import View
from tests.spark.conftest import SharedSession, wait_for
from tests.spark.joined import bonuses, write
from tests.spark.modified import (
    POINT,
    PROCESSED,
    SCORED,
    TOTALLED,
    TOTALS,
    WEIGHED,
    adding,
    functions,
    needs_a_module,
    processor,
    scored_batch,
    totals_batch,
    vectorised,
    weighed_batch,
)
from tests.spark.queries import ROWS_PER_BATCH, source
from tests.spark.run import Run, assert_same_rows

pytestmark = [pytest.mark.spark, pytest.mark.timeout(420)]
SETTINGS = {"spark.sql.shuffle.partitions": "2"}


@pytest.fixture
def spark(shared: SharedSession) -> Iterator[SparkSession]:
    with shared.with_settings(SETTINGS) as session:
        yield session


@pytest.mark.exhaustive
def test_a_driver_is_killed_between_a_binding_and_the_end_of_its_batch(cluster: LocalCluster, tmp_path: Path) -> None:
    run = Run(cluster.session("first", SETTINGS), SCORED, tmp_path)
    reached, bindings = threading.Event(), run.checkpoint / "modifications" / "bindings"

    def hold(batch: int) -> None:
        if (bindings / str(batch)).exists():
            reached.set()
            threading.Event().wait(30)  # the driver is killed meanwhile

    running = run.start(written=hold)
    run.advance(running, 2)
    changes = Modifications(run.checkpoint)
    number = changes.replace_function("score", functions()["minus"]).record.number
    assert reached.wait(60)
    bound = changes.get(number)
    assert bound.state == "in_force"
    assert not (run.checkpoint / "commits" / str(bound.first_batch)).exists()
    cluster.kill_driver()
    run = Run(cluster.session("second", SETTINGS), SCORED, tmp_path)
    running = run.start()
    run.advance(running, 2)
    assert changes.get(number) == bound
    running.stop()
    batches = run.logged()
    assert_same_rows(run.result(batches), scored_batch(run.spark, batches, changes.list(), {number: "minus"}))
    run.spark.stop()


def assert_refused(changes: Modifications) -> None:
    """Bad input is refused with the reason. A dry run is checked, and changes nothing."""
    bad = [
        (changes.replace_function("score", functions()["whole"]), "returns BIGINT, and the new function returns INT"),
        (changes.replace_function("nobody", functions()["plus"]), "has no Python function nobody; it has score"),
        (changes.set_filter("elsewhere", "y > 0"), "has no point elsewhere"),
        (changes.set_filter(POINT, "z > 0"), "has no column `z`; it has k, y"),
        (changes.set_columns(POINT, {"y": "'text'"}), "column y is BIGINT, and 'text' is STRING"),
        (changes.remove("filter", "never"), "no modification of filter never is in force"),
    ]
    for view, reason in bad:
        ended = changes.wait(view.record.number)
        assert ended.state == "refused"
        assert reason in ended.reason
    ended = changes.wait(changes.replace_function("score", functions()["two"]).record.number)
    assert (ended.state, "with 1 arguments, and the new function takes 2" in ended.reason) == ("refused", True)
    for column, text, reason in (("k", "k + 1", "decides a key"), ("y", "y * rand()", "not deterministic")):
        ended = changes.wait(changes.set_columns(POINT, {column: text}).record.number)
        assert (ended.state, reason in ended.reason) == ("refused", True), ended.reason
    dry = changes.wait(changes.replace_function("score", functions()["triple"], dry_run=True).record.number)
    assert (dry.state, dry.first_batch) == ("checked", None), dry.reason


def tried(changes: Modifications) -> dict[int, str]:
    """Two changes on trial: a broken limit ends the first one, and the second one keeps its limits and stays.

    Returns the function that each of them brings.
    """
    strict, lenient = Canary(2, max_rows=1, point=POINT), Canary(2, max_batch_ms=600_000, min_rows=1, point=POINT)
    broken = changes.wait(changes.replace_function("score", functions()["minus"], canary=strict).record.number)
    assert (broken.state, "rows passed scored, and 1 are allowed" in broken.reason) == ("returned", True)
    assert broken.last_batch == broken.first_batch
    wait_for(lambda: changes.get(broken.record.number).figures, "the figures, which follow the return")
    assert list(changes.get(broken.record.number).figures) == [broken.first_batch]
    kept = changes.replace_function("score", functions()["minus"], canary=lenient).record.number
    assert changes.wait(kept).state == "in_force"
    assert len(changes.get(kept).figures) == 2
    return {broken.record.number: "minus", kept: "minus"}


def test_functions_and_operators_of_a_running_query(spark: SparkSession, tmp_path: Path) -> None:
    run = Run(spark, SCORED, tmp_path)
    running = run.start()
    run.advance(running, 2)
    changes = Modifications(run.checkpoint)
    assert changes.list() == ()
    assert not (run.checkpoint / "modifications").exists()  # costs nothing as long as there is none

    run_id, before = running.runId, run.logged()
    assert_refused(changes)
    run.advance(running, 1)
    assert run.logged() > before

    # ---- a function, a filter, columns; one of them out again
    used = {}
    replaced = changes.wait(changes.replace_function("score", functions()["triple"]).record.number)
    assert replaced.state == "in_force", replaced.reason
    used[replaced.record.number] = "triple"
    run.advance(running, 1)
    filtered = changes.wait(changes.set_filter(POINT, "y % 2 = 0").record.number)
    run.advance(running, 1)
    assert changes.wait(changes.set_columns(POINT, {"y": "y + 1000"}).record.number).state == "in_force"
    run.advance(running, 1)
    assert changes.wait(changes.remove("filter", POINT).record.number).state == "in_force"
    assert changes.get(filtered.record.number).state == "replaced"
    run.advance(running, 2)
    assert running.runId == run_id
    batches = run.logged()
    assert_same_rows(run.result(batches), scored_batch(spark, batches, changes.list(), used))

    used |= tried(changes)
    run.advance(running, 1)
    assert running.runId == run_id
    batches = run.logged()
    assert_same_rows(run.result(batches), scored_batch(spark, batches, changes.list(), used))
    running.stop()

    # ---- the batch that brings a modification fails: the next run goes without it
    running = run.start()
    run.advance(running, 1)
    failing = changes.replace_function("score", functions()["fails"])
    wait_for(lambda: not running.isActive, "the query has failed", timeout_s=180)
    assert "no score for" in str(running.exception())
    wait_for(lambda: changes.get(failing.record.number).state == "returned", "the modification is returned")
    assert "no score for" in changes.get(failing.record.number).reason
    running = run.start()
    run.advance(running, 2)
    running.stop()
    batches = run.logged()
    assert_same_rows(run.result(batches), scored_batch(spark, batches, changes.list(), used))


def test_points_leave_the_code_of_the_operators_as_it_is(spark: SparkSession, tmp_path: Path) -> None:
    """The same texts as without a change, for a filter with a function, columns and a join: Spark compiles nothing."""
    run = Run(spark, SCORED, tmp_path)
    wanted, held, seen = threading.Event(), threading.Event(), threading.Event()

    def hold(batch: int) -> None:
        """A batch that is interrupted has no table, and no code with it."""
        if wanted.is_set():
            held.set()
            seen.wait(90)

    running = run.start(written=hold)
    run.advance(running, 2)
    changes = Modifications(run.checkpoint)
    table = write(bonuses(spark, 10), tmp_path / "table")
    passes = F.udf(lambda y: y % 5 > 0, BooleanType())
    for number in (
        changes.set_filter(POINT, "y % 7 < 6 and passes(y)", functions={"passes": passes}).record.number,
        changes.set_columns(POINT, {"y": "y + 31"}).record.number,
        changes.set_join(POINT, table, {"k": "id"}, columns={"y": "y + table.bonus"}, how="inner").record.number,
    ):
        view = changes.wait(number)
        assert view.state == "in_force", view.reason
    wanted.set()
    assert held.wait(90)
    generated = code_of_newest_batch(spark, running)
    ahead = [code_ahead(spark, running, run, fewer) for fewer in ([], [1], [2], [3], [1, 2, 3])]
    seen.set()
    running.stop()
    assert generated
    assert all(code == generated for code in ahead)


class Held:
    """Holds a query at the end of a batch, when all tasks of the batch are done."""

    def __init__(self) -> None:
        self._open, self._held = threading.Event(), threading.Event()
        self._open.set()

    def written(self) -> None:
        while not self._open.wait(0.02):
            self._held.set()

    def hold(self) -> None:
        self._open.clear()
        self._held.clear()
        assert self._held.wait(60), "no batch came to its end"

    def release(self) -> None:
        self._open.set()


def test_the_first_batch_of_a_change_finds_its_code(spark: SparkSession, tmp_path: Path) -> None:
    """Neither driver nor executors compile operators of it. A filter and columns have code of their own.

    Columns that nothing else needs come to a point by other code, which is compiled ahead. The rows that executors run
    that code over are not counted as rows of a batch.
    """
    held, checkpoint = Held(), tmp_path / "checkpoint"

    def sink(rows: DataFrame, batch: int) -> None:  # its own code is the same for each batch
        rows.write.format("noop").mode("append").save()
        held.written()

    stream = marked_twice(spark).writeStream.outputMode("update").option("checkpointLocation", str(checkpoint))
    running = stream.foreachBatch(sink).start()
    wait_for(lambda: len(running.recentProgress) > 3 and not compiles_ahead(spark), "nothing is rehearsed any more")
    clock = running._jsq.streamingQuery().triggerExecutor().clock()
    assert clock.getClass().getSimpleName() == "ActingClock", "batches can wait for a change"
    assert made_up(spark, running) == ["filter", "join"]
    first = First(spark, running, held, Modifications(checkpoint))
    changes = first.changes
    try:
        code = first.of(lambda: changes.set_filter(READ, "value % 2 = 0"))
        assert first.of(lambda: changes.set_columns(POINT, {"y": "y * 3 + 37"})) == code
        assert not first.compiled_ahead
        assert first.of(lambda: changes.set_filter(READ, "other % 3 = 0")) != code
        assert first.compiled_ahead == set(compiling(spark))
        first.compiled_ahead.clear()
        assert first.of(lambda: changes.remove("filter", READ)) == code
        assert not first.compiled_ahead
        held.release()
        wait_for(lambda: running.recentProgress[-1]["batchId"] > first.batches[-1], "one batch more")
    finally:
        held.release()
    running.stop()
    for progress in running.recentProgress:
        share = sum(progress["batchId"] >= batch for batch in (first.batches[0], *first.batches[2:]))
        passed = ROWS_PER_BATCH // (1, 2, 3, 1)[share]
        assert (progress["numInputRows"], progress["observedMetrics"][READ]["rows"]) == (ROWS_PER_BATCH, passed)


class First:
    """The first batches of changes. `compiled_ahead`: JVMs that have compiled something before one of them."""

    def __init__(self, spark: SparkSession, running: StreamingQuery, held: Held, changes: Modifications) -> None:
        self._spark, self._running, self._held = spark, running, held
        self.changes = changes
        self.batches, self.compiled_ahead = list[int](), set[str]()

    def of(self, change: Callable[[], View]) -> set[str]:
        """Makes the change while a batch is held. Expects that the driver compiles nothing after that.

        Returns the Java code of the first batch.
        """
        self._held.hold()
        before = compiling(self._spark)
        number = change().record.number
        wait_for(lambda: self._is_ready(number), "its code is there")
        ahead = compiling(self._spark)
        self.compiled_ahead |= {place for place in before if ahead[place] != before[place]}
        self._held.release()
        view = self.changes.wait(number)
        assert view.state == "in_force", view.reason
        self._held.hold()
        assert compiling(self._spark)["driver"] == ahead["driver"]
        self.batches.append(view.first_batch or 0)
        return code_of_newest_batch(self._spark, self._running)

    def _is_ready(self, number: int) -> bool:
        return self.changes.get(number).state != "pending" and not compiles_ahead(self._spark)


READ = "read"


def marked_twice(spark: SparkSession) -> DataFrame:
    """With a point that only Spark's own code comes before, and one above a Python function."""
    rows = source(spark).select((F.col("value") % 89).alias("k"), "value", (F.col("value") + 1).alias("other"))
    read = rows.observe(READ, F.count(F.lit(1)).alias("rows"))
    scored = read.select("k", F.udf(lambda value: value + 1, LongType())("value").alias("y"))
    return scored.observe(POINT, F.count(F.lit(1)).alias("rows")).groupBy("k").agg(F.sum("y").alias("s"))


def compiling(spark: SparkSession) -> dict[str, int]:
    """For how many nanoseconds each JVM has compiled classes by now: the driver, and each executor by its folder."""
    generator = "org.apache.spark.sql.catalyst.expressions.codegen.CodeGenerator"
    place = "java_method('java.lang.System', 'getProperty', 'user.dir') as place"
    spent = f"java_method('{generator}', 'compileTime') as ns"
    executors = spark.sparkContext._jsc.sc().statusTracker().getExecutorInfos()
    found: dict[str, int] = {}
    while len(found) < len(executors) - 1:  # one of them is the driver
        rows = spark.range(0, 12, 1, 12).selectExpr(place, spent).collect()
        found |= {row.place: int(row.ns) for row in rows}
    jvm: Any = spark._jvm
    return found | {"driver": jvm.org.apache.spark.sql.catalyst.expressions.codegen.CodeGenerator.compileTime()}


def compiles_ahead(spark: SparkSession) -> bool:
    jvm: Any = spark._jvm
    threads = jvm.java.lang.Thread.getAllStackTraces().keySet()
    return any(thread.getName() in ("rhino-compile-ahead", "rhino-warm-up") for thread in threads)


def code_of_newest_batch(spark: SparkSession, held: StreamingQuery) -> set[str]:
    """The Java code of the newest batch of a query that does nothing just now."""
    jvm: Any = spark._jvm
    return bodies(jvm.rhino.spark.modify.CompileAhead.generated(newest_batch(held).executedPlan()))


def code_ahead(spark: SparkSession, held: StreamingQuery, run: Run, numbers: list[int]) -> set[str]:
    """The Java code that Rhino expects of a batch with these modifications."""
    jvm: Any = spark._jvm
    checkpoint = jvm.org.apache.hadoop.fs.Path(run.location)
    folder = jvm.rhino.spark.modify.ModificationFolder(checkpoint, spark._jsc.hadoopConfiguration())
    modifications = jvm.PythonUtils.toSeq([folder.record(number) for number in numbers])
    return bodies(jvm.rhino.spark.modify.CompileAhead.sources(newest_batch(held), modifications))


def made_up(spark: SparkSession, query: StreamingQuery) -> list[str]:
    """The kinds of the changes that a young run prepares. Spark can plan the newest batch with them."""
    jvm: Any = spark._jvm
    modify, no_python = jvm.rhino.spark.modify, jvm.scala.Option.empty()
    batch = newest_batch(query)
    changes = modify.MadeUpChanges.of(batch.logical(), no_python)
    assert bodies(modify.CompileAhead.sources(batch, changes))
    return [changes.apply(place).kind() for place in range(changes.size())]


def newest_batch(query: StreamingQuery) -> Any:
    """Spark's `IncrementalExecution`."""
    return query._jsq.streamingQuery().lastExecution()


def bodies(codes: Any) -> set[str]:
    return {codes.apply(place).body() for place in range(codes.size())}


@pytest.mark.exhaustive
def test_pandas_and_arrow_functions_and_code_that_executors_lack(spark: SparkSession, tmp_path: Path) -> None:
    run = Run(spark, WEIGHED, tmp_path)
    running = run.start()
    run.advance(running, 2)
    changes = Modifications(run.checkpoint)
    lost = changes.wait(changes.replace_function("series", needs_a_module()).record.number)
    assert (lost.state, "No module named 'rhino_nowhere'" in lost.reason) == ("refused", True), lost.reason
    switched = {}
    for name, function in vectorised(7).items():
        view = changes.wait(changes.replace_function(name, function).record.number)
        assert view.state == "in_force", view.reason
        assert view.first_batch is not None
        switched[name] = view.first_batch
        run.advance(running, 1)
    running.stop()
    assert_same_rows(run.result(run.logged()), weighed_batch(spark, run.logged(), switched))


def test_the_function_of_a_stateful_operator(shared: SharedSession, tmp_path: Path) -> None:
    """With its checkpoint on rhino://."""
    with shared.with_settings(SETTINGS | {f"{STREAMING}.stateStore.providerClass": SPARK_PROVIDER}) as spark:
        run = Run(spark, TOTALLED, tmp_path, locate=rhino_checkpoint)
        running = run.start()
        run.advance(running, 3)
        changes = Modifications(run.location)
        view = changes.wait(changes.replace_function("total", state_function(adding(1000), TOTALS)).record.number)
        assert view.state == "in_force", view.reason
        assert view.first_batch is not None
        run.advance(running, 3)
        running.stop()
        assert_same_rows(run.result(run.logged()), totals_batch(spark, run.logged(), view.first_batch))


def test_the_processor_of_transform_with_state(shared: SharedSession, tmp_path: Path) -> None:
    """Its state stays. One that declares another state variable, or has another time mode, is refused."""
    with shared.with_settings(SETTINGS | {f"{STREAMING}.stateStore.providerClass": SPARK_PROVIDER}) as spark:
        run = Run(spark, PROCESSED, tmp_path, locate=rhino_checkpoint)
        running = run.start()
        run.advance(running, 3)
        changes = Modifications(run.location)

        def replaced(made: Any, time_mode: str = "None") -> View:
            function = processor_function(made, TOTALS, time_mode=time_mode)
            return changes.wait(changes.replace_function("transformWithStateUDF", function).record.number)

        wider = replaced(processor(1000, "n bigint, s double"))
        assert wider.state == "refused"
        assert "total is value(n bigint, s bigint), and in the new processor value(n bigint, s double)" in wider.reason
        timed = replaced(processor(1000), "ProcessingTime")
        assert (timed.state, "time mode None" in timed.reason) == ("refused", True), timed.reason
        view = replaced(processor(1000))
        assert view.state == "in_force", view.reason
        assert view.first_batch is not None
        run.advance(running, 3)
        running.stop()
        running = run.start()  # Spark compares the state variables with those in the checkpoint
        run.advance(running, 2)
        running.stop()
        assert_same_rows(run.result(run.logged()), totals_batch(spark, run.logged(), view.first_batch))
