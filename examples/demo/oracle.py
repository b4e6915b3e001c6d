"""An independent answer to NBQ8: DuckDB over the raw events, with its own window arithmetic."""

from __future__ import annotations

from pathlib import Path

import duckdb
from pyspark.sql import SparkSession

from examples.demo import query
from examples.demo.query import COLUMNS, WINDOW_S
from workloads.nexmark import output as outputs
from workloads.nexmark.output import Verdict


def check(spark: SparkSession, load: query.Workload, work: Path) -> Verdict:
    """Compares the output of `query.start` below `work` with the answer over the same events."""
    persons, auctions = query.batches(spark, load)
    persons.write.parquet(str(work / "persons"))
    auctions.write.parquet(str(work / "auctions"))
    return compare(work / "persons", work / "auctions", work / "output")


def compare(persons: Path, auctions: Path, output: Path) -> Verdict:
    """Compares the output of `nbq8` with DuckDB's answer over the parquet folders of raw events."""
    with duckdb.connect() as db:
        answer(db, persons, auctions)
        outputs.load(db, "got", output, COLUMNS)
        return outputs.compare(db, "got", "expected")


def answer(db: duckdb.DuckDBPyConnection, persons: Path, auctions: Path) -> None:
    """Creates the table `expected`: the correct result of `nbq8` for the parquet folders of raw events."""
    _views(db, persons, auctions)
    db.execute(f"create temp table expected as {_EXPECTED}")


_EXPECTED = """
select p.window_ms, p.id as person, p.name, a.id as auction, a.category, a.initial_bid, a.expires,
       md5(p.extra || a.extra) as payload_md5
from persons p join auctions a on a.seller = p.id and a.window_ms = p.window_ms
"""


def _views(db: duckdb.DuckDBPyConnection, persons: Path, auctions: Path) -> None:
    width = WINDOW_S * 1000
    for name, folder in (("persons", persons), ("auctions", auctions)):
        db.execute(
            f"create view {name} as select *, epoch_ms(ts) // {width} * {width} as window_ms "
            f"from read_parquet('{folder}/*.parquet')"
        )
