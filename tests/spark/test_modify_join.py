"""Joins with a static table at a point of a running query: exact, the same table in every run, and never multiplied."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from query_evolution import Canary, Modifications, StaticTable, branch
from query_evolution.modify.ledger import View
from rhino import rhino_checkpoint
from rhino.testing import LocalCluster
from spark_connector.conf import SPARK_PROVIDER, STREAMING
from tests.spark.conftest import SharedSession
from tests.spark.joined import bonuses, joined_batch, write
from tests.spark.modified import NUMBERED, POINT, SCORED
from tests.spark.run import Run, assert_same_rows

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]
SETTINGS = {"spark.sql.shuffle.partitions": "2"}
# With these, the tables have more partitions than one job reads.
SPLIT = {"spark.sql.files.maxPartitionBytes": "128", "spark.sql.files.openCostInBytes": "1"}
ON = {"k": "id"}
ADDS = {"y": "y + coalesce(table.bonus, 7)"}


@pytest.fixture
def spark(shared: SharedSession) -> Iterator[SparkSession]:
    provider = {f"{STREAMING}.stateStore.providerClass": SPARK_PROVIDER}
    with shared.with_settings(SETTINGS | SPLIT | provider) as session:
        yield session


def in_force(changes: Modifications, view: View) -> int:
    """Waits for a modification, and returns its number."""
    ended = changes.wait(view.record.number)
    assert ended.state == "in_force", ended.reason
    return ended.record.number


@pytest.mark.nightly
def test_joins_of_a_running_query_on_rhino(cluster: LocalCluster, spark: SparkSession, tmp_path: Path) -> None:
    """All four kinds, between a filter and columns, through a restart. What becomes of the table has no effect."""
    run = Run(spark, SCORED, tmp_path / "live", locate=rhino_checkpoint)
    running = run.start()
    run.advance(running, 2)
    changes, folder = Modifications(run.location), tmp_path / "table"
    first, tables = bonuses(spark, 1_000_000), {}
    table = write(first, folder)
    kept = run.checkpoint / "modifications" / "tables"
    dry = changes.wait(changes.set_join(POINT, table, ON, columns=ADDS, dry_run=True).record.number)
    assert (dry.state, kept.exists()) == ("checked", False), dry.reason

    in_force(changes, changes.set_filter(POINT, "y % 5 > 0"))
    in_force(changes, changes.set_columns(POINT, {"y": "y * 2"}))
    canary = Canary(1, min_rows=1)
    number = in_force(changes, changes.set_join(POINT, table, ON, columns=ADDS, canary=canary))
    tables[number] = first
    assert [path.name for path in kept.iterdir()] == [str(number)]
    assert kept.stat().st_mode & 0o777 == 0o700
    write(bonuses(spark, 5), folder)  # another content at the same place
    run.advance(running, 1)
    running.stop()
    shutil.rmtree(folder)
    running = run.start()
    run.advance(running, 2)

    # ---- a branch has the table, too
    branch(cluster.manager, run.checkpoint, tmp_path / "branch")
    copied = tmp_path / "branch" / "modifications" / "tables" / str(number)
    assert copied.read_bytes() == (kept / str(number)).read_bytes()

    second = bonuses(spark, 11)
    path = write(second.select(F.col("id").cast("int"), "bonus"), tmp_path / "second")  # another size of integer
    for how, columns in (("inner", ADDS), ("left_anti", {}), ("left_semi", {})):
        tables[in_force(changes, changes.set_join(POINT, path, ON, how=how, columns=columns))] = second
        run.advance(running, 1)
    in_force(changes, changes.remove("join", POINT))
    run.advance(running, 1)
    running.stop()
    batches = run.logged()
    assert_same_rows(run.result(batches), joined_batch(spark, batches, changes.list(), tables))
    states = [str(view.state) for view in changes.list() if view.record.change.kind == "join"]
    assert states == ["checked", *["replaced"] * 4, "in_force"]


Tables = Callable[[str], StaticTable]
Refused = tuple[str, Callable[[Modifications, Tables], View], str]
LARGE_ROWS = 700_000  # of 112 bytes


def write_tables(spark: SparkSession, folder: Path) -> Tables:
    """Tables of the refusals, in Parquet; `lines` is CSV with a malformed line."""
    good = bonuses(spark, 10)
    made: dict[str, DataFrame] = {
        "good": good,
        "repeated": good.union(good.where("id < 8")),
        "empty": good.where("id < 0"),
        "texts": good.select(F.col("id").cast("string"), "bonus"),
        "large": spark.range(LARGE_ROWS).select("id", F.expr("repeat('x', 80)").alias("bonus")),
    }
    for name, rows in made.items():
        write(rows, folder / name)
    (folder / "lines.csv").write_text("1,10\n2,secret\n")

    def table(name: str) -> StaticTable:
        if name == "lines":
            return StaticTable(f"{folder}/lines.csv", "csv", "id bigint, bonus bigint")
        return StaticTable(f"{folder}/{name}", schema="id bigint, bonus" if name == "no schema" else "")

    return table


def _semi(name: str, point: str = POINT, on: dict[str, str] = ON) -> Callable[[Modifications, Tables], View]:
    return lambda query, tables: query.set_join(point, tables(name), on, how="left_semi")


def _set(name: str, **columns: str) -> Callable[[Modifications, Tables], View]:
    return lambda query, tables: query.set_join(POINT, tables(name), ON, columns=columns)


CASES: list[Refused] = [
    ("no table", _semi("nowhere"), "nowhere cannot be read: [PATH_NOT_FOUND]"),
    ("a schema that is none", _semi("no schema"), "cannot be read: [PARSE_SYNTAX_ERROR]"),
    ("no rows", _semi("empty"), "empty has no rows: a filter needs no table"),
    ("too large", _semi("large"), "MiB of rows in memory, and driver and executors broadcast 64 MiB at most"),
    ("a malformed line", _semi("lines"), "MALFORMED_RECORD_IN_PARSING"),
    ("several rows of a key", _set("repeated", y="y + table.bonus"), "5 keys of the table "),
    ("another type of the key", _semi("texts"), "column k is BIGINT, and id of the table is STRING: give the table a"),
    ("no such column of the point", _semi("good", on={"v": "id"}), "the point has no column v; it has k, y, one"),
    ("no such column of the table", _semi("good", on={"k": "key"}), "the table has no column key; it has id, bonus"),
    ("no such column to read", _set("good", y="table.price"), "the table has no column `price`; it has id, bonus"),
    ("a column without its table", _set("good", y="bonus"), "no column `bonus`; it has k, y, one"),
    ("the table as a value", _set("good", y="y + size(array(table))"), "name one of its columns"),
    ("another type", _set("good", y="cast(table.bonus as string)"), "is STRING: cast it"),
    ("null where it never was", _set("good", one="cast(table.bonus as int)"), "use coalesce"),
    ("a key of state", _set("good", k="coalesce(table.bonus, k)"), "start a new query for that"),
    ("random", _set("good", y="table.bonus + cast(rand() as bigint)"), "not deterministic"),
    ("no such point", _semi("good", point="elsewhere"), 'name it by .observe("elsewhere", ...)'),
    ("nothing to remove", lambda query, tables: query.remove("join", POINT), "no modification of join scored is in"),
]


@pytest.fixture(scope="module")
def refusing(
    shared: SharedSession, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Run, StreamingQuery, Tables]]:
    """One run for all refusals, and the tables."""
    with shared.with_settings(SETTINGS) as spark:
        run = Run(spark, NUMBERED, tmp_path_factory.mktemp("joins"))
        tables = write_tables(spark, tmp_path_factory.mktemp("tables"))
        running = run.start()
        run.advance(running, 1)
        yield run, running, tables
        running.stop()


@pytest.mark.nightly
@pytest.mark.parametrize(("change", "reason"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_a_refused_join_says_what_is_wrong(
    refusing: tuple[Run, StreamingQuery, Tables], change: Callable[[Modifications, Tables], View], reason: str
) -> None:
    run, running, tables = refusing
    query = Modifications(run.checkpoint)
    view = query.wait(change(query, tables).record.number)
    assert (view.state, view.first_batch) == ("refused", None)
    assert reason in view.reason
    assert "secret" not in view.reason  # values of rows are not for everybody
    assert running.isActive
    assert not (run.checkpoint / "modifications" / "tables").exists()


@pytest.mark.nightly  # a query of its own; StaticTableSuite shows that each damage is noticed
def test_a_batch_whose_table_is_damaged_fails_and_says_so(shared: SharedSession, tmp_path: Path) -> None:
    with shared.with_settings(SETTINGS) as spark:
        run = Run(spark, SCORED, tmp_path)
        running = run.start()
        run.advance(running, 1)
        changes = Modifications(run.checkpoint)
        table = write(bonuses(spark, 3), tmp_path / "table")
        number = in_force(changes, changes.set_join(POINT, table, ON, how="left_semi"))
        run.advance(running, 1)
        running.stop()
        file = run.checkpoint / "modifications" / "tables" / str(number)
        whole = file.read_bytes()
        file.write_bytes(whole[:-1])
        running = run.start()
        failed: Any = None
        try:
            running.awaitTermination(60)
        except Exception as error:  # PySpark's class depends on the kind of session
            failed = error
        assert f"the table of modification {number}, file modifications/tables/{number}" in str(failed)
        file.write_bytes(whole)
        running = run.start()
        run.advance(running, 1)
        running.stop()
        assert changes.get(number).state == "in_force"
