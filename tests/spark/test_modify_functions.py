"""Python functions that a running query did not have come to a point of it: exact, from a batch on, in each run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import LongType

from query_evolution import Canary, Modifications, branch
from query_evolution.modify.ledger import View
from rhino import rhino_checkpoint
from rhino.testing import LocalCluster
from spark_connector.conf import SPARK_PROVIDER, STREAMING
from tests.spark.conftest import SharedSession, wait_for
from tests.spark.inserted import BARE, inserted_batch, inserted_functions
from tests.spark.joined import bonuses, write
from tests.spark.modified import POINT, SCORED
from tests.spark.queries import ROWS_PER_BATCH
from tests.spark.run import Run, assert_same_rows
from tests.spark.support.modify_refusals import Gate

pytestmark = [pytest.mark.spark, pytest.mark.nightly, pytest.mark.timeout(300)]
SETTINGS = {"spark.sql.shuffle.partitions": "2", f"{STREAMING}.stateStore.providerClass": SPARK_PROVIDER}


@pytest.fixture
def spark(shared: SharedSession) -> Iterator[SparkSession]:
    with shared.with_settings(SETTINGS) as session:
        yield session


def in_force(changes: Modifications, view: View) -> View:
    ended = changes.wait(view.record.number)
    assert ended.state == "in_force", ended.reason
    return ended


def test_functions_that_a_query_did_not_have(spark: SparkSession, tmp_path: Path) -> None:
    """In a query without Python functions: inserted, replaced, removed, and the same after a restart."""
    run, gate, all_of = Run(spark, BARE, tmp_path, locate=rhino_checkpoint), Gate(), inserted_functions()
    running = run.start(written=gate.written)
    run.advance(running, 2)
    changes, run_id = Modifications(run.location), running.runId

    def of(name: str) -> dict[str, object]:
        return {name: all_of[name]}

    dry = changes.wait(changes.set_columns(POINT, {"y": "flip(y)"}, functions=of("flip"), dry_run=True).record.number)
    assert (dry.state, dry.first_batch) == ("checked", None), dry.reason

    gate.closed.set()
    assert gate.held.wait(90)
    first = changes.set_columns(POINT, {"y": "weigh(y, k) + 1"}, functions=of("weigh")).record.number
    wait_for(lambda: changes.get(first).state != "pending", "it is checked while a batch is held")
    gate.closed.clear()
    assert in_force(changes, changes.get(first)).first_batch == gate.batch + 1
    canary = Canary(1, min_rows=1)
    seldom = in_force(changes, changes.set_filter(POINT, "seldom(y)", functions=of("seldom"), canary=canary))
    assert running.runId == run_id
    running.stop()

    running = run.start()
    run.advance(running, 1)
    second = in_force(changes, changes.set_columns(POINT, {"y": "FLIP(y)"}, functions=of("flip")))
    run.advance(running, 1)
    assert (changes.get(first).state, seldom.last_batch) == ("replaced", None)
    in_force(changes, changes.remove("columns", POINT))
    run.advance(running, 1)
    running.stop()
    batches, numbers = run.logged(), (first, seldom.record.number, second.record.number)
    meant = dict(zip(numbers, ("y * 3 + k + 1", "y % 5 <> 0", "-y"), strict=True))
    assert_same_rows(run.result(batches), inserted_batch(spark, batches, changes.list(), meant))


def test_functions_of_all_kinds_in_columns_and_in_a_join(
    cluster: LocalCluster, spark: SparkSession, tmp_path: Path
) -> None:
    """In a query that has a Python function; one calls another, and a branch has them, too."""
    run, all_of = Run(spark, SCORED, tmp_path / "live", locate=rhino_checkpoint), inserted_functions()
    running = run.start()
    run.advance(running, 2)
    changes, meant = Modifications(run.location), {}

    def change(meaning: str, asked: View) -> None:
        meant[in_force(changes, asked).record.number] = meaning
        run.advance(running, 1)

    for name, call, meaning in (
        ("series", "series(y, k)", "y * 2 + k"),
        ("sevenfold", "sevenfold(y)", "y * 7"),
        ("batches", "batches(y)", "y + 1000"),
        ("arrays", "arrays(y)", "y + 31"),
    ):
        change(meaning, changes.set_columns(POINT, {"y": call}, functions={name: all_of[name]}))
    several = {name: all_of[name] for name in ("weigh", "series", "sevenfold", "batches", "arrays", "flip")}
    call = "weigh(series(sevenfold(y), factor => k), k) + if(y % 2 = 0, flip(batches(y)), arrays(y))"
    meaning = "((y * 7) * 2 + k) * 3 + k + if(y % 2 = 0, -(y + 1000), y + 31)"
    change(meaning, changes.set_columns(POINT, {"y": call}, functions=several))
    table = write(bonuses(spark, 10), tmp_path / "table")
    adds, flip = {"y": "y + flip(coalesce(table.bonus, 0))"}, {"flip": all_of["flip"]}
    change("y - if(k % 3 > 0, k * 10, 0)", changes.set_join(POINT, table, {"k": "id"}, columns=adds, functions=flip))

    branch(cluster.manager, run.checkpoint, tmp_path / "branch")
    copied = Modifications(tmp_path / "branch").list()
    assert [view.record for view in copied] == [view.record for view in changes.list()]
    running.stop()
    running = run.start()
    run.advance(running, 1)
    running.stop()
    batches = run.logged()
    assert_same_rows(run.result(batches), inserted_batch(spark, batches, changes.list(), meant, first="value + 1"))


def test_a_function_gets_the_rows_of_its_batches_and_no_others(spark: SparkSession, tmp_path: Path) -> None:
    """Its first batch is prepared without it."""
    log = tmp_path / "values"

    def logged(value: int) -> int:
        with log.open("a") as file:  # one line is one write
            file.write(f"{value}\n")
        return value

    run = Run(spark, SCORED, tmp_path, locate=rhino_checkpoint)
    running = run.start()
    run.advance(running, 2)
    changes = Modifications(run.location)
    function = {"logged": F.udf(logged, LongType())}
    view = in_force(changes, changes.set_columns(POINT, {"y": "logged(y)"}, functions=function))
    run.advance(running, 1)
    running.stop()
    assert view.first_batch is not None
    first, end = (batch * ROWS_PER_BATCH + 1 for batch in (view.first_batch, run.logged()))  # SCORED adds one
    values = [int(line) for line in log.read_text().split()]
    assert sorted(value for value in values if value < end) == list(range(first, end))  # the last batch may be stopped


def test_a_function_that_fails_is_returned(spark: SparkSession, tmp_path: Path) -> None:
    def fails(value: int) -> int:
        raise ValueError(f"no score for {value}")

    run = Run(spark, BARE, tmp_path, locate=rhino_checkpoint)
    running = run.start()
    run.advance(running, 1)
    changes = Modifications(run.location)
    number = changes.set_columns(POINT, {"y": "fails(y)"}, functions={"fails": F.udf(fails, LongType())}).record.number
    wait_for(lambda: not running.isActive, "the query has failed", timeout_s=180)
    wait_for(lambda: changes.get(number).state == "returned", "the modification is returned")
    assert "no score for" in changes.get(number).reason
    running = run.start()
    run.advance(running, 2)
    running.stop()
    assert_same_rows(run.result(run.logged()), inserted_batch(spark, run.logged(), changes.list(), {}))
