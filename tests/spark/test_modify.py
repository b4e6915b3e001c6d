"""Running queries are modified: same run, exact state, one version for each batch, through a killed driver as well."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import BooleanType

from query_evolution import Canary, Modifications, processor_function, state_function
from query_evolution.modify.ledger import View
from rhino import rhino_checkpoint
from rhino.testing import LocalCluster
from spark_connector.conf import SPARK_PROVIDER, STREAMING
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
from tests.spark.run import Run, assert_same_rows

pytestmark = [pytest.mark.spark, pytest.mark.timeout(420)]
SETTINGS = {"spark.sql.shuffle.partitions": "2"}


@pytest.fixture
def spark(shared: SharedSession) -> Iterator[SparkSession]:
    with shared.with_settings(SETTINGS) as session:
        yield session


@pytest.mark.nightly
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


@pytest.mark.nightly
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


class Held:
    """Holds a query at the end of a batch, when all tasks of the batch are done."""

    def __init__(self) -> None:
        self._open, self._held = threading.Event(), threading.Event()
        self._open.set()

    def written(self, batch: int) -> None:
        while not self._open.wait(0.02):
            self._held.set()

    def hold(self) -> None:
        self._open.clear()
        self._held.clear()
        assert self._held.wait(60), "no batch came to its end"

    def release(self) -> None:
        self._open.set()


@pytest.mark.nightly
def test_points_leave_the_code_of_the_operators_as_it_is(spark: SparkSession, tmp_path: Path) -> None:
    """The same texts as without a change, for a filter with a function, columns and a join: Spark compiles nothing."""
    run, held = Run(spark, SCORED, tmp_path), Held()
    running = run.start(written=held.written)
    run.advance(running, 2)
    changes = Modifications(run.checkpoint)
    table = write(bonuses(spark, 10), tmp_path / "table")
    passes = F.udf(lambda y: y % 5 > 0, BooleanType())
    held.hold()
    before = code_of_newest_batch(spark, running)
    assert before
    all_three: list[Callable[[], View]] = [
        lambda: changes.set_filter(POINT, "y % 7 < 6 and passes(y)", functions={"passes": passes}),
        lambda: changes.set_columns(POINT, {"y": "y + 31"}),
        lambda: changes.set_join(POINT, table, {"k": "id"}, columns={"y": "y + table.bonus"}, how="inner"),
    ]
    for change in all_three:
        held.release()
        view = changes.wait(change().record.number)
        assert view.state == "in_force", view.reason
        held.hold()
        assert code_of_newest_batch(spark, running) == before
    held.release()
    running.stop()


def code_of_newest_batch(spark: SparkSession, held: StreamingQuery) -> set[str]:
    """The Java code of the newest batch of a query that does nothing just now."""
    jvm: Any = spark._jvm
    debug = getattr(getattr(jvm.org.apache.spark.sql.execution.debug, "package$"), "MODULE$")
    codes = debug.codegenStringSeq(held._jsq.streamingQuery().lastExecution().executedPlan())
    return {codes.apply(place)._2() for place in range(codes.size())}


@pytest.mark.nightly
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


@pytest.mark.nightly
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
