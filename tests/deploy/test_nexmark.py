"""The SQL generator gives what java.util.Random gives, and pads records to the paper's sizes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from deploy.demo import nexmark
from deploy.local.session import close_driver, open_session
from tests.deploy import java_random

pytestmark = pytest.mark.spark
# Seller bounds below 1010 pass through every power of two (java.util.Random has a branch for them) until 1000 persons.
COUNT = 6000


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    conf = {"spark.master": "local[2]", "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    quiet = {"spark.ui.enabled": "false", "spark.driver.memory": "512m"}
    yield open_session(conf | quiet, log_path=tmp_path_factory.mktemp("driver") / "driver.log")
    close_driver()


def test_the_independent_random_is_javas() -> None:
    """new Random(42): published first values of nextInt(10) and nextInt(16)."""
    random = java_random.JavaRandom(42)
    assert [random.next_int(10) for _ in range(8)] == [0, 3, 8, 4, 0, 5, 5, 8]


def test_persons_are_bit_exact(spark: SparkSession) -> None:
    rows = nexmark.persons(nexmark.batch(spark, COUNT)).select("id", "name", F.unix_millis("ts")).collect()
    assert sorted(tuple(r) for r in rows) == [java_random.person(v) for v in range(COUNT)]


@pytest.mark.parametrize("start", [0, 750_000])
def test_auctions_are_bit_exact(spark: SparkSession, start: int) -> None:
    values = spark.range(start, start + COUNT).withColumnRenamed("id", "value")
    columns = ("id", "seller", "category", "initial_bid", "expires")
    rows = nexmark.auctions(values).select(*columns, F.unix_millis("ts")).collect()
    assert sorted(tuple(r) for r in rows) == [java_random.auction(v) for v in range(start, start + COUNT)]


def test_a_rejected_draw_is_drawn_again(spark: SparkSession) -> None:
    """java.util.Random repeats a draw above the last multiple of the bound; seeds found by going backwards."""
    bound, inverse = 1010, pow(25214903917, -1, 2**48)
    states = [((2**31 - 1 << 17) - 11 + k) * inverse % 2**48 for k in range(64)]
    drawn = nexmark._next_int(spark.createDataFrame([(s,) for s in states], "seed bigint"), "x", str(bound)).collect()
    expected = []
    for state in states:
        random = java_random.JavaRandom(0)
        random.state = state
        expected.append((random.next_int(bound), random.state))
        assert random.state != (state * 25214903917 + 11) % 2**48, "this seed needs no second draw"
    assert sorted((r.x, r.seed) for r in drawn) == sorted(expected)


def test_records_have_the_papers_sizes(spark: SparkSession) -> None:
    person = nexmark.persons(nexmark.batch(spark, 100)).select(F.expr("8 + 8 + length(name) + length(extra)"))
    auction = nexmark.auctions(nexmark.batch(spark, 100)).select(F.expr("6 * 8 + length(extra)"))
    assert {r[0] for r in person.collect()} == {206}
    assert {r[0] for r in auction.collect()} == {269}


def test_stream_and_batch_are_the_same_rows(spark: SparkSession, tmp_path: Path) -> None:
    """Uneven batches: the last one is cut, later ones are empty."""
    rows = nexmark.auctions(nexmark.stream(spark, 1000, 3)).select("id")
    running = (
        rows.writeStream.format("parquet")
        .option("path", str(tmp_path / "out"))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start()
    )
    try:
        while len(list((tmp_path / "checkpoint" / "commits").glob("[0-9]*"))) < 4:
            assert running.exception() is None
            running.awaitTermination(0.1)
    finally:
        running.stop()
    got = [r.id for r in spark.read.parquet(str(tmp_path / "out")).collect()]
    assert sorted(got) == list(range(1000, 2000))
