"""The numpy generator against java.util.Random and Beam's published counts, the answers against RisingWave's rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import duckdb
import pytest

from tests.benchmarks import risingwave
from tests.workloads import java_random
from workloads.nexmark import reference
from workloads.nexmark.jobs import load
from workloads.nexmark.queries import joins, sessions, simple, windows, winning
from workloads.nexmark.query import Query
from workloads.nexmark.settings import BASE_MS, Generator

EVENTS = 10_000


def rows(columns: reference.Columns) -> list[dict[str, Any]]:
    kept = {name: list(values) for name, values in columns.items() if name != "extra"}
    return [dict(zip(kept, row, strict=True)) for row in zip(*kept.values(), strict=True)]


@pytest.mark.parametrize("start", [0, 12_500_000])
def test_numpys_events_are_bit_exact(start: int) -> None:
    import numpy as np

    ids = np.arange(start, start + EVENTS)
    generator = Generator(addresses=True, descriptions=True)
    auctions = rows(reference._auctions(ids[(ids % 50 > 0) & (ids % 50 < 4)], generator))
    assert auctions == [java_random.auction(v) for v in range(start // 50 * 3, (start + EVENTS) // 50 * 3)]
    bids = rows(reference._bids(ids[ids % 50 > 3], generator))
    assert bids == [java_random.bid(n) for n in range(start, start + EVENTS) if n % 50 > 3]
    persons = rows(reference._persons(ids[ids % 50 == 0], generator))
    assert persons == [java_random.person(v) for v in range(start // 50, (start + EVENTS) // 50)]


def test_records_have_the_papers_sizes() -> None:
    events = reference.make(5000, Generator(padded=True))
    assert {16 + len(n) + len(x) for n, x in zip(events.person["name"], events.person["extra"], strict=True)} == {206}
    assert {48 + len(x) for x in events.auction["extra"]} == {269}


@pytest.fixture(scope="module")
def beam() -> Iterator[duckdb.DuckDBPyConnection]:
    """100 000 events of 100 generators, as Beam's documentation of its NEXMark suite has them."""
    with duckdb.connect() as db:
        load(db, reference.make(100_000, Generator(generators=100, events=100_000, addresses=True, descriptions=True)))
        yield db


def count(db: duckdb.DuckDBPyConnection, sql: str) -> int:
    found = db.execute(f"select count(*) from ({sql})").fetchone()
    assert found is not None
    return int(found[0])


@pytest.mark.parametrize(
    ("query", "published"),
    [(simple.q1(), 92_000), (simple.q2(), 351), (windows.q5(), 12), (windows.q7(), 1), (joins.nbq8(10), 6000)],
    ids=["Q1", "Q2", "Q5", "Q7", "Q8"],
)
def test_beams_published_counts(beam: duckdb.DuckDBPyConnection, query: Query, published: int) -> None:
    assert count(beam, query.answer) == published


def test_beams_published_count_of_sessions(beam: duckdb.DuckDBPyConnection) -> None:
    """Q11: all events lie within ten seconds, so every bidder has one session."""
    assert count(beam, "select distinct bidder from bid") == 1919


def test_beams_published_count_of_winning_bids() -> None:
    """Q9, of 10 000 events: Beam asks for the reserve, and takes bids that come before their auction."""
    with duckdb.connect() as db:
        load(db, reference.make(10_000, Generator(generators=100, events=10_000, addresses=True, descriptions=True)))
        wins = "a.id = b.auction and b.ts_ms < a.expires and b.price >= a.reserve"
        assert count(db, f"select distinct a.id from auction a join bid b on {wins}") == 298


@pytest.fixture(scope="module")
def published() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as db:
        for table, text, columns in (
            ("person", risingwave.PERSONS, "id bigint, name text, city text, state text, ts_ms bigint"),
            ("auction", risingwave.AUCTIONS, "id bigint, seller bigint, category int, ts_ms bigint, expires bigint"),
            ("bid", risingwave.BIDS, "auction bigint, bidder bigint, price bigint, ts_ms bigint"),
        ):
            db.execute(f"create table {table} ({columns})")
            lines = [line.split(",") for line in text.split("\n") if line]
            db.executemany(f"insert into {table} values ({', '.join('?' * len(lines[0]))})", lines)
            db.execute(f"update {table} set ts_ms = ts_ms + {BASE_MS}")
        db.execute(f"update auction set expires = expires + {BASE_MS}")
        yield db


def answer(db: duckdb.DuckDBPyConnection, query: Query, columns: str) -> list[tuple[Any, ...]]:
    named = ", ".join(query.columns)
    return sorted(db.execute(f"with t({named}) as ({query.answer}) select {columns} from t").fetchall())


def test_risingwaves_published_rows(published: duckdb.DuckDBPyConnection) -> None:
    wanted = "auction in (1007, 1020, 2001, 2019, 2087)"
    assert answer(published, simple.q2(wanted), "*") == risingwave.Q2
    assert answer(published, joins.q3(), "*") == risingwave.Q3
    assert answer(published, winning.q4(100 * 86_400), "category, total / auctions") == risingwave.Q4
    assert answer(published, windows.q5(10, 2), "auction, bids") == risingwave.Q5
    assert answer(published, windows.q7(), f"auction, price, bidder, ts_ms - {BASE_MS}") == risingwave.Q7
    assert answer(published, joins.q8(), f"id, name, window_ms - {BASE_MS}") == risingwave.Q8


def test_q1_in_risingwaves_words(published: duckdb.DuckDBPyConnection) -> None:
    dearest = answer(published, simple.q1(), "auction, bidder, price_thousandths / 1000")
    assert max(dearest, key=lambda row: float(row[2])) == (1001, 1004, 87652465.216)
    assert len(dearest) == 50


def test_sessions_begin_anew_after_a_gap() -> None:
    """An auction's bid at the very end of the gap still belongs to its session, as in Spark."""
    gap = 30 * 60_000
    with duckdb.connect() as db:
        db.execute("create table auction (id bigint, ts_ms bigint)")
        db.execute("create table bid (auction bigint, price bigint, ts_ms bigint)")
        db.execute(f"insert into auction values (7, 0), (7, {3 * gap}), (8, 5)")
        db.execute(f"insert into bid values (7, 10, {gap}), (7, 30, {3 * gap + 1}), (7, 20, {3 * gap + 1})")
        found = db.execute(sessions._session_answer(30)).fetchall()
    assert sorted(found) == [
        ("session-30", 7, 0, 2 * gap, 1, 1, 10),
        ("session-30", 7, 3 * gap, 4 * gap + 1, 1, 2, 30),
    ]
