"""Dry runs of functions call old and new with rows of a batch. The answer is for the one who asks, and not in a log."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import LongType

from query_evolution import Modifications
from rhino import rhino_checkpoint
from rhino.testing import LocalCluster
from spark_connector.conf import SPARK_PROVIDER, STREAMING
from tests.spark.conftest import SharedSession
from tests.spark.modified import NUMBERED, WEIGHED, functions, vectorised
from tests.spark.queries import ROWS_PER_BATCH
from tests.spark.run import Run, assert_equals_batch

pytestmark = [pytest.mark.spark, pytest.mark.nightly, pytest.mark.timeout(300)]
SECRET = "secret-of-row"


@pytest.fixture
def spark(shared: SharedSession) -> Iterator[SparkSession]:
    settings = {"spark.sql.shuffle.partitions": "2", f"{STREAMING}.stateStore.providerClass": SPARK_PROVIDER}
    with shared.with_settings(settings) as session:
        yield session


def test_both_versions_get_the_rows_of_a_batch(spark: SparkSession, cluster: LocalCluster, tmp_path: Path) -> None:
    """With the checkpoint on rhino://. A function that fails for a row is no danger: it is not in force."""

    def suspicious(value: int) -> int:
        if value % 10 == 3:
            raise ValueError(f"secret-of-row {value}")
        return value + 1 if value % 10 else -value

    run = Run(spark, NUMBERED, tmp_path, locate=rhino_checkpoint)
    running = run.start()
    run.advance(running, 2)
    query = Modifications(run.location)
    view = query.wait(query.replace_function("score", F.udf(suspicious, LongType()), dry_run=True).record.number)
    assert (view.state, view.first_batch) == ("checked", None), view.reason

    folder = run.checkpoint / "modifications" / "comparisons"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    found = query.take_comparison(view.record.number)
    assert found is not None
    assert query.take_comparison(view.record.number) is None
    assert list(folder.glob("[0-9]*")) == []
    assert found.skipped == ""
    assert found.rows == ROWS_PER_BATCH
    assert found.different == 2 * ROWS_PER_BATCH // 10
    assert (found.old.failed, found.new.failed) == (0, ROWS_PER_BATCH // 10)
    assert found.new.error.startswith(f"ValueError: {SECRET} ")
    assert found.old.row_us is not None
    assert found.old.row_us > 0
    assert len(found.examples) == 5
    for example in found.examples:
        value = int(example.given.strip("(),"))
        assert value // ROWS_PER_BATCH == found.batch
        assert example.old == str(value + 1)
        assert example.new == (str(-value) if value % 10 == 0 else f"ValueError: {SECRET} {value}")

    above = query.wait(query.replace_function("shown", functions()["plus"], dry_run=True).record.number)
    skipped = query.take_comparison(above.record.number)
    assert skipped is not None
    assert skipped.skipped == "the rows of shown come out of a stateful operator"
    silent = query.wait(query.replace_function("score", functions()["plus"], dry_run=True, sample=0).record.number)
    assert (silent.state, query.take_comparison(silent.record.number)) == ("checked", None)

    run.advance(running, 1)
    running.stop()
    assert_equals_batch(run)
    logs = [*cluster.log_dir.rglob("*.log"), *cluster.folder.rglob("stderr")]  # of daemons and driver, of executors
    assert {"stderr", "spark-driver.log"} <= {path.name for path in logs}
    assert [path for path in logs if SECRET in path.read_text(errors="replace")] == []


def test_columns_of_pandas_and_arrow(spark: SparkSession, tmp_path: Path) -> None:
    run = Run(spark, WEIGHED, tmp_path, locate=rhino_checkpoint)
    running = run.start()
    run.advance(running, 2)
    query = Modifications(run.location)
    for name, function in vectorised(7).items():
        view = query.wait(query.replace_function(name, function, dry_run=True, sample=50).record.number)
        found = query.take_comparison(view.record.number)
        assert found is not None
        assert (view.state, found.skipped, found.rows) == ("checked", "", 50), view.reason
        assert found.different == 50 - (found.batch == 0)
        example = found.examples[0]
        value = int(example.given.strip("(),"))
        assert (example.old, example.new) == (str(value), str(7 * value))
        assert (found.old.failed, found.new.failed) == (0, 0)
        assert found.new.row_us is not None
    running.stop()
