"""Branches and restructured queries with operators whose checkpoints name schema files by full paths.

These are transformWithState (on rhino:// only) and joins of state formats 3 and 4.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from query_evolution import branch
from rhino import rhino_checkpoint
from rhino.testing import LocalCluster
from spark_connector.conf import PROVIDER_CLASSES, SPARK_PROVIDER
from spark_connector.query_checkpoint import PROVIDER_KEY
from tests.spark.operators import OPERATORS
from tests.spark.queries import QUERIES, ROWS_PER_BATCH, StatefulQuery, consumed, events_of, join, source
from tests.spark.run import Run, assert_equals_batch, assert_same_rows
from tests.spark.support.named_schemas import totals, totals_of, unnamed
from tests.spark.support.restructure import SETTINGS, Story
from tests.spark.support.takeover import Tool

pytestmark = [pytest.mark.spark, pytest.mark.nightly, pytest.mark.timeout(420)]
NAME = "named"
JOIN = replace(QUERIES["join4"], name=NAME)


def files(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def stateful(stream: Callable[[SparkSession], DataFrame], mode: str, key: str | None) -> StatefulQuery:
    return StatefulQuery(NAME, mode, stream, totals_of, key)


TOTALS = stateful(lambda spark: totals(source(spark)), "update", "k")
FIRSTS = stateful(lambda spark: totals(source(spark)).dropDuplicates(["k"]), "update", None)


@pytest.fixture(scope="module")
def stock(cluster: LocalCluster) -> Iterator[SparkSession]:
    """A session that may run queries with Spark's own provider, too."""
    session = cluster.session("named", SETTINGS | {PROVIDER_KEY: SPARK_PROVIDER})
    yield session
    session.stop()


def branched(run: Run, cluster: LocalCluster, folder: Path, locate: Callable[[Path], str]) -> Run:
    """A branch after the newest batch, with the output so far."""
    made = branch(cluster.manager, run.checkpoint, folder / "checkpoint")
    for batch in range(made.batch + 1):
        shutil.copytree(run.output / str(batch), folder / "output" / str(batch))
    return Run(run.spark, replace(run.query, name="shadow"), folder, locate)


def check_branch(run: Run, cluster: LocalCluster, tmp_path: Path, locate: Callable[[Path], str]) -> None:
    """The other query goes on, its checkpoint is deleted at the end, and the branch has all that it needs."""
    running = run.start()
    run.advance(running, 3)
    shadow = branched(run, cluster, tmp_path / "shadow", locate)
    schemas = unnamed(shadow.checkpoint, run.checkpoint)
    assert len(schemas) == 1
    shadowing = shadow.start()
    shadow.advance(shadowing, 1)
    shadowing.stop()
    run.advance(running, 1)
    running.stop()
    assert_equals_batch(run)
    shutil.rmtree(run.checkpoint)
    shadowing = shadow.start()
    shadow.advance(shadowing, 2)
    shadowing.stop()
    assert unnamed(shadow.checkpoint, run.checkpoint) == schemas  # Spark found it, and needed no other one
    assert_equals_batch(shadow)


def test_a_branch_of_a_query_with_transform_with_state(
    cluster: LocalCluster, stock: SparkSession, tmp_path: Path
) -> None:
    stock.conf.set(PROVIDER_KEY, SPARK_PROVIDER)
    run = Run(stock, OPERATORS["transform-ttl"], tmp_path / "q", rhino_checkpoint)
    check_branch(run, cluster, tmp_path, rhino_checkpoint)


def test_a_branch_of_a_join(cluster: LocalCluster, stock: SparkSession, tmp_path: Path) -> None:
    stock.conf.set(PROVIDER_KEY, PROVIDER_CLASSES["provider"])
    check_branch(Run(stock, JOIN, tmp_path / "q"), cluster, tmp_path, str)


def first_totals(spark: SparkSession, first: int, batches: int) -> DataFrame:
    """The totals of each key in the first of these batches that has it. Those of batches before count."""
    rows = events_of(consumed(spark, batches)).withColumn("batch", F.floor(F.col("value") / ROWS_PER_BATCH))
    shown = rows.where(F.col("batch") >= first).groupBy("k").agg(F.min("batch").alias("shown"))
    grouped = rows.join(shown, "k").where("batch <= shown").groupBy("k")
    return grouped.agg(F.count("*").alias("n"), F.max("value").alias("m"))


def test_transform_with_state_moves_and_goes_back_and_is_released(
    cluster: LocalCluster, stock: SparkSession, tmp_path: Path
) -> None:
    stock.conf.set(PROVIDER_KEY, SPARK_PROVIDER)
    story = Story(cluster, stock, tmp_path, rhino_checkpoint, TOTALS)
    first = story.go(3)
    former, before = story.run, files(story.run.checkpoint)
    made = story.turn(FIRSTS, "second")
    assert [(one.fate, one.old, one.new) for one in made.operators] == [("born", None, 0), ("moved", 0, 1)]
    assert files(former.checkpoint) == before
    assert unnamed(story.run.checkpoint, former.checkpoint) != set()
    story.run.output = tmp_path / "second" / "output"
    story.go(1)

    story.run, second = former, story.run
    story.go(1)
    assert_equals_batch(former)

    Tool(cluster)("release", second.checkpoint)
    second.location = str(second.checkpoint)
    running = second.start()
    second.advance(running, 1)
    running.stop()
    batches = second.logged()
    (schema,) = unnamed(second.checkpoint, former.checkpoint)
    assert schema.startswith("file:/")
    new = stock.read.parquet(*[f"{second.output}/{batch}" for batch in range(first, batches)])
    assert_same_rows(new.drop("batch_id"), first_totals(stock, first, batches))


def distinct_pairs(spark: SparkSession) -> DataFrame:
    return join(source(spark), source(spark)).dropDuplicates(["ka", "a"]).select("ka", "a")


DISTINCT = StatefulQuery(NAME, "append", distinct_pairs, JOIN.batch, None)


@pytest.mark.parametrize("form", [4, 3])
def test_a_join_moves_and_goes_back_and_is_released(
    cluster: LocalCluster, stock: SparkSession, tmp_path: Path, form: int
) -> None:
    """Spark 4.2 has format 3 only. The files have the same form, and other column families."""
    used = min(form, JOIN.state_format)
    stock.conf.set(PROVIDER_KEY, PROVIDER_CLASSES["provider"])
    story = Story(cluster, stock, tmp_path, str, replace(JOIN, state_format=used))
    first = story.go(3)
    former, before = story.run, files(story.run.checkpoint)
    made = story.turn(replace(DISTINCT, state_format=used), "second")
    assert [(one.fate, one.old, one.new, one.name) for one in made.operators] == [
        ("born", None, 0, "dedupe"),
        ("moved", 0, 1, "symmetricHashJoin"),
    ]
    assert files(former.checkpoint) == before
    schemas = unnamed(story.run.checkpoint, former.checkpoint)
    story.run.output = tmp_path / "second" / "output"
    story.go(2)
    Tool(cluster)("release", story.run.checkpoint)
    stock.conf.set(PROVIDER_KEY, SPARK_PROVIDER)
    running = story.run.start()
    story.run.advance(running, 2)
    running.stop()
    second = story.run.logged()
    assert unnamed(story.run.checkpoint, former.checkpoint) == schemas
    pairs, known = JOIN.batch(stock, second), JOIN.batch(stock, first)
    new = stock.read.parquet(*[f"{story.run.output}/{batch}" for batch in range(first, second)])
    expected = pairs.exceptAll(known).select("ka", "a").distinct()
    assert expected.where(F.col("a") < first * ROWS_PER_BATCH).count() > 0  # of rows that the former code has read
    assert_same_rows(new.drop("batch_id"), expected)

    stock.conf.set(PROVIDER_KEY, PROVIDER_CLASSES["provider"])
    story.run = former
    story.go(2)
    assert_equals_batch(former)


# ---- operators that are born


def unique(spark: SparkSession) -> DataFrame:
    return source(spark).select("value").dropDuplicates(["value"])


def rows_since(spark: SparkSession, first: int, batches: int) -> DataFrame:
    return consumed(spark, batches).where(F.col("value") >= first * ROWS_PER_BATCH)


BORN: dict[str, tuple[str, Callable[[Path], str], StatefulQuery, StatefulQuery]] = {
    "transform": (
        SPARK_PROVIDER,
        rhino_checkpoint,
        stateful(unique, "append", None),
        stateful(lambda spark: totals(unique(spark)), "update", "k"),
    ),
    "join": (
        PROVIDER_CLASSES["provider"],
        str,
        stateful(lambda spark: unique(spark).union(source(spark).select("value").where("value < 0")), "append", None),
        stateful(lambda spark: join(unique(spark), source(spark)), "append", None),
    ),
}


@pytest.mark.parametrize("what", BORN)
def test_an_operator_with_schema_files_is_born(
    cluster: LocalCluster, stock: SparkSession, tmp_path: Path, what: str
) -> None:
    provider, locate, old, new = BORN[what]
    stock.conf.set(PROVIDER_KEY, provider)
    story = Story(cluster, stock, tmp_path, locate, old)
    first = story.go(2)
    former = story.run
    made = story.turn(new, "second")
    assert [(one.fate, one.old, one.new) for one in made.operators] == [("born", None, 0), ("moved", 0, 1)]
    story.run.output = tmp_path / "second" / "output"
    story.go(2)
    (schema,) = unnamed(story.run.checkpoint, former.checkpoint)  # Spark has written it
    batches = story.go(1)
    assert unnamed(story.run.checkpoint, former.checkpoint) == {schema}
    rows = stock.read.parquet(*[f"{story.run.output}/{batch}" for batch in range(first, batches)])
    since = rows_since(stock, first, batches)
    if what == "join":
        assert_same_rows(rows.drop("batch_id"), join(since, since))
        return
    newest = rows.groupBy("k").agg(F.max("batch_id").alias("batch_id"))
    expected = events_of(since).groupBy("k").agg(F.count("*").alias("n"), F.max("value").alias("m"))
    assert_same_rows(rows.join(newest, ["k", "batch_id"]).drop("batch_id"), expected)
