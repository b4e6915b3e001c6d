"""The SQL generator gives what java.util.Random gives, and its stream gives every event once, as its batch does."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from rhino.testing.session import close_driver, open_session
from rhino.testing.spark_daemons import lean_jvm
from rhino_core.errors import InvalidSettingError
from tests.workloads import java_random
from workloads.nexmark import draws, events, source
from workloads.nexmark.settings import BASE_MS, Generator

pytestmark = pytest.mark.spark
ALL = Generator(addresses=True, descriptions=True)
# Seller bounds below 1010 pass through every power of two (java.util.Random has a branch for them) until 1000 persons.
EVENTS = 51_000
FROM_AND_COUNT = [(0, EVENTS), (12_500_000, 5_000)]


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    conf = {"spark.master": "local[2]", "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    quiet = {
        "spark.ui.enabled": "false",
        "spark.driver.memory": "512m",
        "spark.driver.extraJavaOptions": " ".join(lean_jvm()),
    }
    yield open_session(conf | quiet, log_path=tmp_path_factory.mktemp("driver") / "driver.log")
    close_driver()


def test_the_independent_random_is_javas() -> None:
    """new Random(42): published first values of nextInt(10) and nextInt(16)."""
    random = java_random.JavaRandom(42)
    assert [random.next_int(10) for _ in range(8)] == [0, 3, 8, 4, 0, 5, 5, 8]


def made(rows: DataFrame) -> list[dict[str, Any]]:
    rows = rows.drop("extra").withColumn("ts_ms", F.unix_millis("ts")).drop("ts")
    return [row.asDict() for row in rows.collect()]


def ids(spark: SparkSession, start: int, end: int) -> DataFrame:
    return spark.range(start, end).toDF("n")


def test_persons_are_bit_exact(spark: SparkSession) -> None:
    rows = made(events.persons(ids(spark, 0, EVENTS), ALL))
    assert sorted(rows, key=lambda r: int(r["id"])) == [java_random.person(v) for v in range(EVENTS // 50)]


@pytest.mark.parametrize(("start", "count"), FROM_AND_COUNT)
def test_auctions_are_bit_exact(spark: SparkSession, start: int, count: int) -> None:
    rows = made(events.auctions(ids(spark, start, start + count), ALL))
    first = start // 50 * 3
    expected = [java_random.auction(v) for v in range(first, first + count // 50 * 3)]
    assert sorted(rows, key=lambda r: int(r["id"])) == expected


@pytest.mark.parametrize(("start", "count"), FROM_AND_COUNT)
def test_bids_are_bit_exact(spark: SparkSession, start: int, count: int) -> None:
    rows = made(events.bids(ids(spark, start, start + count)))
    expected = [java_random.bid(n) for n in range(start, start + count) if n % 50 > 3]
    assert sorted(map(repr, rows)) == sorted(map(repr, expected))


def test_a_rejected_draw_is_drawn_again(spark: SparkSession) -> None:
    """java.util.Random repeats a draw above the last multiple of the bound; seeds found by going backwards."""
    bound, inverse = 1010, pow(25214903917, -1, 2**48)
    states = [((2**31 - 1 << 17) - 11 + k) * inverse % 2**48 for k in range(64)]
    drawn = draws.next_int(spark.createDataFrame([(s,) for s in states], "seed bigint"), "x", str(bound)).collect()
    expected = []
    for state in states:
        random = java_random.JavaRandom(0)
        random.state = state
        expected.append((random.next_int(bound), random.state))
        assert random.state != (state * 25214903917 + 11) % 2**48, "this seed needs no second draw"
    assert sorted((r.x, r.seed) for r in drawn) == sorted(expected)


def test_records_have_the_papers_sizes(spark: SparkSession) -> None:
    padded = Generator(padded=True)
    person = events.persons(ids(spark, 0, 5000), padded).select(F.expr("8 + 8 + length(name) + length(extra)"))
    auction = events.auctions(ids(spark, 0, 5000), padded).select(F.expr("6 * 8 + length(extra)"))
    assert {r[0] for r in person.collect()} == {206}
    assert {r[0] for r in auction.collect()} == {269}
    assert [t for _, t in events.bids(ids(spark, 0, 5000), padded).dtypes] == ["bigint"] * 3 + ["timestamp"]


def test_a_stream_has_every_event_once_and_then_the_far_ones(spark: SparkSession, tmp_path: Path) -> None:
    sizes, far = (300, 0, 500, 200), source.far_events(Generator())
    rows = source.stream(spark, sizes, far)
    running = (
        rows.writeStream.format("parquet")
        .option("path", str(tmp_path / "out"))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start()
    )
    try:
        while len(list((tmp_path / "checkpoint" / "commits").glob("[0-9]*"))) < 6:
            assert running.exception() is None
            running.awaitTermination(0.1)
    finally:
        running.stop()
    got = [r.n for r in spark.read.parquet(str(tmp_path / "out")).collect()]
    assert sorted(got) == [*range(1000), *far]
    assert [p["numInputRows"] for p in running.recentProgress][:5] == [500] * 5


def test_far_events_come_decades_later_and_do_not_join(spark: SparkSession) -> None:
    for rate in (1, 10_000, 1_000_000):
        generator = Generator(rate=rate)
        far = spark.createDataFrame([(n,) for n in source.far_events(generator)], "n bigint")
        person, auction, bid = (made(f(far, generator)) for f in (events.persons, events.auctions, events.bids))
        assert (len(person), len(auction), len(bid)) == (1, 1, 1)
        assert auction[0]["seller"] != person[0]["id"]
        assert bid[0]["auction"] != auction[0]["id"]
        assert all(row["ts_ms"] - BASE_MS > 20 * 365 * 86_400_000 for row in (*person, *auction, *bid))


def test_batches_add_up_to_all_events() -> None:
    assert source.equal_sizes(1000, 3) == (333, 333, 334)
    varying = source.varying_sizes(100_000, 60)
    assert sum(varying) == 100_000
    assert varying.index(max(varying)) == 14
    assert 7.5 < max(varying) / min(varying) < 8.5


def test_generators_share_their_events() -> None:
    with pytest.raises(InvalidSettingError, match="multiple of the 3 generators"):
        Generator(generators=3, events=1000)


def test_a_condition_on_the_last_draw_costs_no_more(spark: SparkSession) -> None:
    """Pushed down through all draws before it, this one took a gigabyte of heap and no end."""
    rows = events.persons(ids(spark, 0, EVENTS), ALL).where("lower(state) in ('or', 'id', 'ca')")
    expected = [java_random.person(v) for v in range(EVENTS // 50)]
    assert rows.count() == sum(person["state"] in ("OR", "ID", "CA") for person in expected)
