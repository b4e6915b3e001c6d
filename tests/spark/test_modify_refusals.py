"""Modifications that cannot be: each is refused by a real driver with what to do, and the running query goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from query_evolution import Canary, Modifications
from query_evolution.modify.folder import ModificationFolder
from query_evolution.modify.ledger import View
from query_evolution.modify.record import Change, Kind
from rhino import rhino_checkpoint
from rhino.testing.conf import stock_settings
from rhino_core.errors import ConflictError, PreconditionError, UnknownError
from spark_connector.conf import SPARK_PROVIDER, STREAMING
from tests.spark.conftest import SharedSession, wait_for
from tests.spark.inserted import REFUSED_FUNCTIONS
from tests.spark.modified import NUMBERED, POINT, functions, needs_a_module, numbered_batch
from tests.spark.run import Run, assert_same_rows
from tests.spark.support.bad_input import run_sessions
from tests.spark.support.modify_refusals import Gate

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]
SETTINGS = {"spark.sql.shuffle.partitions": "2"}
Case = tuple[str, Callable[[Modifications], View], str]


@pytest.fixture(scope="module")
def spark(shared: SharedSession) -> Iterator[SparkSession]:
    with shared.with_settings(SETTINGS) as session:
        yield session


@pytest.fixture(scope="module")
def run(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Run:
    return Run(spark, NUMBERED, tmp_path_factory.mktemp("numbered"))


@pytest.fixture(scope="module")
def gate() -> Gate:
    return Gate()


@pytest.fixture(scope="module")
def running(run: Run, gate: Gate) -> Iterator[StreamingQuery]:
    """One run for all cases. A refused change must not end it."""
    query = run.start(written=gate.written)
    run.advance(query, 2)
    yield query
    query.stop()


def _missing() -> Any:
    return needs_a_module(F.udf, "int")


CASES: list[Case] = [
    (
        "another return type",
        lambda q: q.replace_function("score", functions()["whole"]),
        "score returns BIGINT, and the new function returns INT",
    ),
    ("another type of a column", lambda q: q.set_columns(POINT, {"y": "'text'"}), "'text' is STRING: cast it"),
    ("a column that may be null", lambda q: q.set_columns(POINT, {"one": "nullif(1, 1)"}), "use coalesce"),
    (
        "a filter on a column that was dropped below the point",
        lambda q: q.set_filter(POINT, "value > 0"),
        f"the point {POINT} has no column `value`; it has k, y, one",
    ),
    (
        "an expression with a column that was dropped",
        lambda q: q.set_columns(POINT, {"y": "y + value"}),
        f"the point {POINT} has no column `value`; it has k, y, one",
    ),
    (
        "a column that was dropped",
        lambda q: q.set_columns(POINT, {"value": "1"}),
        f"the point {POINT} has no column value; it has k, y, one",
    ),
    ("no condition", lambda q: q.set_filter(POINT, "y + 1"), "DATATYPE_MISMATCH.FILTER_NOT_BOOLEAN"),
    (
        "a filter that aggregates",
        lambda q: q.set_filter(POINT, "max(y) > 3"),
        "max(y) > 3: max is an aggregate function, and SQL of a point makes one value of each row",
    ),
    ("the first value", lambda q: q.set_columns(POINT, {"y": "first(y)"}), "first(y): first is an aggregate function"),
    ("a sum over rows", lambda q: q.set_columns(POINT, {"y": "sum(y) over ()"}), "sum(y) over (): has an OVER clause"),
    ("a rank", lambda q: q.set_columns(POINT, {"y": "rank()"}), "rank is a window function"),
    ("two rows", lambda q: q.set_columns(POINT, {"y": "explode(array(y, y))"}), "explode makes several rows of one"),
    (
        "a window",
        lambda q: q.set_filter(POINT, "window(timestamp_seconds(y), '1 second').start > '2020-01-01'"),
        "window groups rows by time",
    ),
    (
        "a session",
        lambda q: q.set_columns(POINT, {"y": "session_window(timestamp_seconds(y), '1 second')"}),
        "session_window groups rows by time",
    ),
    ("the clock", lambda q: q.set_filter(POINT, "current_time() > time'12:00:00'"), "takes the time from the clock"),
    ("a word for now", lambda q: q.set_filter(POINT, "cast('now' as timestamp) > '2020-01-01'"), "from the clock"),
    ("a constant of today", lambda q: q.set_filter(POINT, "date'today' > '2020-01-01'"), "from the clock"),
    ("no SQL", lambda q: q.set_filter(POINT, "y >"), "PARSE_SYNTAX_ERROR"),
    ("a key by columns", lambda q: q.set_columns(POINT, {"k": "k + 1"}), "start a new query for that"),
    (
        "a key by its function",
        lambda q: q.replace_function("keyed", functions()["plus"]),
        "keyed decides a key or the event time of a stateful operator",
    ),
    (
        "a random filter",
        lambda q: q.set_filter(POINT, "rand() < 0.5"),
        "not deterministic: a batch that is tried again",
    ),
    ("a random column", lambda q: q.set_columns(POINT, {"y": "y * uuid()"}), "not deterministic"),
    (
        "in place of a random function",
        lambda q: q.replace_function("noise", functions()["plus"]),
        "noise is declared as non-deterministic",
    ),
    (
        "code that no executor can load",
        lambda q: q.replace_function("score", _missing()),
        "the executors cannot load the new function: ModuleNotFoundError: No module named 'rhino_nowhere'",
    ),
    (
        "no such function",
        lambda q: q.replace_function("nobody", functions()["plus"]),
        "it has shown, keyed, score, noise",
    ),
    ("no such point", lambda q: q.set_filter("elsewhere", "y > 0"), 'name it by .observe("elsewhere", ...)'),
    (
        "a filter by another table",
        lambda q: q.set_filter(POINT, "y in (select id from range(9))"),
        "Join the table by `rhino modify join`",
    ),
    (
        "rows of a point that does not count them",
        lambda q: q.set_filter(POINT, "y > 0", canary=Canary(2, min_rows=1, point="counted")),
        "give .observe a count with the alias rows",
    ),
    (
        "a canary that outlives the state before it",
        lambda q: q.set_filter(POINT, "y > 0", canary=Canary(100)),
        "the query keeps the state of 100 batches",
    ),
    ("nothing to remove", lambda q: q.remove("columns", POINT), f"no modification of columns {POINT} is in force"),
    *REFUSED_FUNCTIONS,
]


@pytest.mark.nightly
@pytest.mark.parametrize(("change", "reason"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_a_refusal_says_what_is_wrong(
    run: Run, running: StreamingQuery, change: Callable[[Modifications], View], reason: str
) -> None:
    query = Modifications(run.checkpoint)
    view = query.wait(change(query).record.number)
    assert (view.state, view.first_batch) == ("refused", None)
    assert reason in view.reason
    assert running.isActive


@pytest.mark.nightly
def test_the_query_has_gone_on_as_if_nothing_had_been_asked(run: Run, running: StreamingQuery) -> None:
    query = Modifications(run.checkpoint)
    before = {view.record.number for view in query.list()}
    run.advance(running, 2)
    assert {str(view.state) for view in query.list()} <= {"refused"}
    assert {view.record.number for view in query.list()} == before
    assert not (run.checkpoint / "modifications" / "bindings").exists()
    batches = run.logged()
    assert_same_rows(run.result(batches), numbered_batch(run.spark, batches, batches))


@pytest.mark.nightly
def test_a_batch_that_has_begun_keeps_its_version_and_two_at_once_are_one(
    run: Run, running: StreamingQuery, gate: Gate
) -> None:
    """While a batch is held, all that is asked for waits for the next one, and the second of a slot is refused."""
    query, folder, run_id = Modifications(run.checkpoint), ModificationFolder(run.checkpoint), running.runId
    gate.closed.set()
    assert gate.held.wait(90)
    first = query.replace_function("score", functions()["triple"]).record
    wait_for(lambda: query.get(first.number).state == "accepted", "the first one is accepted")
    with pytest.raises(ConflictError, match=f"modification {first.number} of function score is on its way"):
        query.replace_function("score", functions()["minus"])
    raced = folder.add(Change(Kind.FUNCTION, "score", code=first.change.code), "another", dry_run=False)
    refused = query.wait(raced.number)  # of a command that had looked before the first record was there
    assert (refused.state, "waits for the next batch" in refused.reason) == ("refused", True), refused.reason
    with pytest.raises(ConflictError, match="is checked already"):
        query.withdraw(first.number)
    assert query.get(first.number).first_batch is None  # while the batch runs
    gate.closed.clear()
    view = query.wait(first.number)
    assert (view.state, view.first_batch) == ("in_force", gate.batch + 1)
    with pytest.raises(PreconditionError, match="a driver may be running the query"):
        query.withdraw(first.number)
    run.advance(running, 2)
    assert running.runId == run_id
    running.stop()
    batches = run.logged()
    assert_same_rows(run.result(batches), numbered_batch(run.spark, batches, gate.batch + 1))


def test_what_is_no_query_of_rhino(tmp_path: Path) -> None:
    """A query of a session without Rhino, in a process of its own, and a folder that is no checkpoint."""
    outcome = run_sessions(tmp_path, {"stock": stock_settings()})[0]["stock"]
    assert outcome.done, outcome.error
    with pytest.raises(PreconditionError, match="without Rhino; `rhino adopt` takes it over"):
        Modifications(tmp_path / "stock")
    with pytest.raises(UnknownError, match="no query checkpoint"):
        Modifications(tmp_path)
    assert not (tmp_path / "stock" / "modifications").exists()


@pytest.mark.nightly
def test_a_query_in_real_time_mode(shared: SharedSession, tmp_path: Path) -> None:
    settings = {
        f"{STREAMING}.stateStore.providerClass": SPARK_PROVIDER,
        f"{STREAMING}.realTimeMode.allowlistCheck": "false",
    }
    with shared.with_settings(settings) as spark:
        marked = _low_latency(spark).observe(POINT, F.count(F.lit(1)).alias("rows"))
        writer = marked.writeStream.format("console").outputMode("update").trigger(realTime="5 minutes")
        running = writer.option("checkpointLocation", rhino_checkpoint(tmp_path / "checkpoint")).start()
        wait_for(lambda: running.exception() is not None or (tmp_path / "checkpoint" / "metadata").exists(), "a start")
        query = Modifications(tmp_path / "checkpoint")
        view = query.wait(query.set_filter(POINT, "value > 'a'").record.number)
        assert (view.state, "runs in real-time mode" in view.reason) == ("refused", True), view.reason
        assert "start it with trigger(processingTime=...)" in view.reason
        assert running.isActive
        running.stop()


def _low_latency(spark: SparkSession) -> DataFrame:
    """A source that the real-time mode takes, of texts. PySpark has no name for it."""
    jvm: Any = spark._jvm
    stream = jvm.org.apache.spark.sql.execution.streaming.sources.LowLatencyMemoryStream
    return DataFrame(stream.apply(spark._jsparkSession, 1, jvm.org.apache.spark.sql.Encoders.STRING()).toDF(), spark)
