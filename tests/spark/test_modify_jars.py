"""Functions of Scala and Java of a running query are replaced by classes of a jar: exact, and in each run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import LongType

from query_evolution import Canary, Modifications, branch, jar_function
from query_evolution.modify.ledger import View
from rhino.testing import LocalCluster
from tests.jvm_functions import SCORE, build, jar_of
from tests.spark.conftest import SharedSession, wait_for
from tests.spark.modified import POINT, _counted
from tests.spark.queries import ROWS_PER_BATCH, StatefulQuery, consumed, source
from tests.spark.run import Run, assert_same_rows

pytestmark = [pytest.mark.spark, pytest.mark.nightly, pytest.mark.timeout(300)]
SETTINGS = {"spark.sql.shuffle.partitions": "2"}


@pytest.fixture(scope="module")
def classes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("functions"))


@pytest.fixture
def spark(shared: SharedSession) -> Iterator[SparkSession]:
    with shared.with_settings(SETTINGS) as session:
        yield session
        for name in ("rate", "shift"):
            session.sql(f"DROP TEMPORARY FUNCTION IF EXISTS {name}")


def has_functions(spark: SparkSession, jar: Path) -> None:
    """The application brings its own versions."""
    spark.sql(f"ADD JAR '{jar}'")
    spark.udf.registerJavaFunction("rate", SCORE, LongType())
    jvm: Any = spark._jvm
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    loader.loadClass("com.acme.Application").newInstance().register(spark._jsparkSession)


def scored(spark: SparkSession) -> DataFrame:
    y = F.expr("rate(value) + shift(value)").alias("y")  # one of Java, one of Scala
    rows = source(spark).select((F.col("value") % 89).alias("k"), y)
    marked = rows.observe(POINT, F.count(F.lit(1)).alias("rows"))
    return marked.groupBy("k").agg(F.count(F.lit(1)).alias("n"), F.sum("y").alias("s"))


def scored_batch(spark: SparkSession, batches: int, views: Sequence[View], meant: Mapping[int, str]) -> DataFrame:
    """`meant`: by number of a modification, what its function computes of `value`."""
    rows = consumed(spark, batches).withColumn("batch", F.floor(F.col("value") / ROWS_PER_BATCH))
    rows = rows.selectExpr("*", "value + 1 as rate", "value + 1 as shift")
    for view in filter(_counted, views):
        if view.record.number in meant:
            name = view.record.change.target
            last = batches if view.last_batch is None else view.last_batch
            within = f"batch between {view.first_batch} and {last}"
            rows = rows.withColumn(name, F.expr(f"if({within}, {meant[view.record.number]}, {name})"))
    keyed = rows.selectExpr("value % 89 as k", "rate + shift as y").groupBy("k")
    return keyed.agg(F.count(F.lit(1)).alias("n"), F.sum("y").alias("s"))


QUERY = StatefulQuery("jarred", "update", scored, lambda spark, batches: scored_batch(spark, batches, [], {}), key="k")


def ended(changes: Modifications, view: View, state: str) -> View:
    its = changes.wait(view.record.number)
    assert its.state == state, its.reason
    return its


def assert_refused(changes: Modifications, jar: Path) -> None:
    plus, whole = F.udf(lambda value: value + 1, LongType()), jar_function(jar, "com.acme.Whole")
    for name, function, reason in (
        ("rate", plus, "rate is a Scala or Java function: give its new version by --jar"),
        ("rate", whole, "rate returns BIGINT, and com.acme.Whole returns java.lang.Integer"),
        ("nobody", whole, "no Scala or Java function nobody; it has rate, shift"),
        ("shift", jar_function(jar, SCORE), "shift is never null in the query, and a result of com.acme.Score may be"),
    ):
        assert reason in ended(changes, changes.replace_function(name, function), "refused").reason


def test_a_java_function_is_replaced_by_classes_of_jars(spark: SparkSession, classes: Path, tmp_path: Path) -> None:
    """By one of the same name, by one of Scala, the same after a restart, and out again."""
    has_functions(spark, jar_of(classes, tmp_path / "present.jar", factor=1))
    new = jar_of(classes, tmp_path / "new.jar", factor=3)
    run = Run(spark, QUERY, tmp_path)
    running = run.start()
    run.advance(running, 2)
    changes, run_id = Modifications(run.checkpoint), running.runId
    assert_refused(changes, new)
    dry = ended(changes, changes.replace_function("rate", jar_function(new, SCORE), dry_run=True), "checked")
    assert dry.first_batch is None
    found = changes.take_comparison(dry.record.number)
    assert found is not None
    assert (found.skipped, found.rows, found.old.failed, found.new.failed) == ("", ROWS_PER_BATCH, 0, 0)
    assert found.different == ROWS_PER_BATCH - (found.batch == 0)  # 0 is the same
    value = int(found.examples[0].given.strip("()"))
    assert (found.examples[0].old, found.examples[0].new) == (str(value + 1), str(value * 3 + 1))
    canary = Canary(1, min_rows=1, point=POINT)
    first = ended(changes, changes.replace_function("rate", jar_function(new, SCORE), canary=canary), "in_force")
    new.unlink()  # the copy beside the record counts
    assert running.runId == run_id
    running.stop()

    running = run.start()
    run.advance(running, 1)
    minus = jar_function(jar_of(classes, tmp_path / "minus.jar", factor=1), "com.acme.Minus")
    second = ended(changes, changes.replace_function("rate", minus), "in_force")
    doubled = jar_function(tmp_path / "minus.jar", "com.acme.Doubled")
    third = ended(changes, changes.replace_function("shift", doubled), "in_force")
    run.advance(running, 1)
    ended(changes, changes.remove("function", "rate"), "in_force")
    run.advance(running, 1)
    running.stop()
    numbers = [view.record.number for view in (first, second, third)]
    batches, meant = run.logged(), dict(zip(numbers, ("value * 3 + 1", "-value", "value * 2"), strict=True))
    assert_same_rows(run.result(batches), scored_batch(spark, batches, changes.list(), meant))


def test_a_class_that_fails_a_branch_and_a_driver_that_is_killed(
    cluster: LocalCluster, classes: Path, tmp_path: Path
) -> None:
    jar = jar_of(classes, tmp_path / "new.jar", factor=5)
    present = jar_of(classes, tmp_path / "present.jar", factor=1)
    first = cluster.session("first", SETTINGS)
    has_functions(first, present)
    run = Run(first, QUERY, tmp_path)
    running = run.start()
    run.advance(running, 2)
    changes = Modifications(run.checkpoint)
    failing = changes.replace_function("rate", jar_function(jar, "com.acme.Fails")).record.number
    wait_for(lambda: not running.isActive, "the query has failed", timeout_s=180)
    wait_for(lambda: changes.get(failing).state == "returned", "the modification is returned")
    assert "no score for" in str(running.exception())
    running = run.start()
    run.advance(running, 1)
    used = ended(changes, changes.replace_function("rate", jar_function(jar, SCORE)), "in_force").record.number
    run.advance(running, 1)
    branch(cluster.manager, run.checkpoint, tmp_path / "branch")
    copied_views = Modifications(tmp_path / "branch").list()
    assert [view.record for view in copied_views] == [view.record for view in changes.list()]
    copied, own = (folder / "modifications" / "jars" for folder in (tmp_path / "branch", run.checkpoint))
    assert [path.read_bytes() for path in copied.iterdir()] == [path.read_bytes() for path in own.iterdir()]
    cluster.kill_driver()

    second = cluster.session("second", SETTINGS)
    has_functions(second, present)
    run = Run(second, QUERY, tmp_path)
    running = run.start()
    run.advance(running, 2)
    running.stop()
    batches = run.logged()
    meant = {used: "value * 5 + 1"}
    assert_same_rows(run.result(batches), scored_batch(second, batches, changes.list(), meant))
    second.stop()
