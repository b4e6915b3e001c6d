"""DuckDB's independent answers, over the rows that the logged batches have read."""

from __future__ import annotations

from pathlib import Path

import duckdb

from examples.demo import oracle
from examples.demo.query import COLUMNS
from tests.chaos import queries
from workloads.nexmark.output import Verdict, compare


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
    with duckdb.connect() as db:
        db.execute(f"create temp table got as {got}", {"files": _files(folder, "aggregation", batches)})
        db.execute(f"create temp table expected as {expected}")
        return compare(db, "got", "expected")


def nbq8(folder: Path, batches: int, events: Path) -> Verdict:
    """`events`: what `queries.write_events` has written for `batches` batches."""
    got = f"select {', '.join(COLUMNS)} from read_parquet($files)"
    with duckdb.connect() as db:
        db.execute(f"create temp table got as {got}", {"files": _files(folder, "nbq8", batches)})
        oracle.answer(db, events / "persons", events / "auctions")
        return compare(db, "got", "expected")
