"""DuckDB's independent answers, over the rows that the logged batches have read."""

from __future__ import annotations

from pathlib import Path

import duckdb

from deploy.demo.query import COLUMNS, WINDOW_S
from deploy.nexmark import output as outputs
from deploy.nexmark.output import Verdict
from tests.chaos import queries


def _compare(got: str, expected: str, files: list[str]) -> Verdict:
    with duckdb.connect() as db:
        db.execute(f"create temp table got as {got}", {"files": files})
        db.execute(f"create temp table expected as {expected}")
        return outputs.compare(db, "got", "expected")


def _files(folder: Path, name: str, batches: int) -> list[str]:
    parts = (folder / name / "output" / str(b) for b in range(batches))
    return [str(file) for part in parts for file in sorted(part.glob("*.parquet"))]


def aggregation(folder: Path, batches: int) -> Verdict:
    """Update mode: of each key the row of its newest batch counts."""
    batch = r"cast(regexp_extract(filename, '/(\d+)/[^/]+$', 1) as bigint)"
    got = f"""
        select k, n, s, m from read_parquet($files, filename = true)
        qualify row_number() over (partition by k order by {batch} desc) = 1
    """
    expected = f"""
        select v * 7919 % {queries.KEYS} as k, count(*) as n, cast(sum(v) as bigint) as s, max(v) as m
        from range({batches * queries.ROWS_PER_BATCH}) t(v) group by k
    """
    return _compare(got, expected, _files(folder, "aggregation", batches))


def nbq8(folder: Path, batches: int, events: Path) -> Verdict:
    """`events`: what `queries.write_events` has written for `batches` batches."""
    width = WINDOW_S * 1000
    persons, auctions = (
        f"(select *, epoch_ms(ts) // {width} * {width} as window_ms from read_parquet('{events}/{kind}/*.parquet'))"
        for kind in ("persons", "auctions")
    )
    expected = f"""
        select p.window_ms, p.id as person, p.name, a.id as auction, a.category, a.initial_bid, a.expires,
               md5(p.extra || a.extra) as payload_md5
        from {persons} p join {auctions} a on a.seller = p.id and a.window_ms = p.window_ms
    """
    got = f"select {', '.join(COLUMNS)} from read_parquet($files)"
    return _compare(got, expected, _files(folder, "nbq8", batches))
