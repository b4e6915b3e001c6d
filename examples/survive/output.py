"""An independent answer: DuckDB counts the same numbers, and each batch must have written exactly its keys."""

from __future__ import annotations

from pathlib import Path

import duckdb

from examples.survive.application import KEYS, ROWS, STRIDE
from workloads.nexmark.output import Verdict, compare


def check(output: Path, batches: int) -> Verdict:
    """Compares all rows of the batches 0 to `batches` - 1."""
    folders = [f"{output}/{batch}/*.parquet" for batch in range(batches)]
    with duckdb.connect() as db:
        db.execute(
            "create temp table got as select k, n, cast(string_split(filename, '/')[-2] as integer) as batch "
            "from read_parquet($folders, filename = true)",
            {"folders": folders},
        )
        db.execute(
            f"create temp table expected as with rows as (select range * {STRIDE} % {KEYS} as k, "
            f"cast(range // {ROWS} as integer) as batch from range({batches * ROWS})), "
            "each as (select k, batch, count(*) as n from rows group by all) "
            "select k, cast(sum(n) over (partition by k order by batch) as bigint) as n, batch from each"
        )
        return compare(db, "got", "expected")
