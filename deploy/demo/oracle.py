"""An independent answer to NBQ8: DuckDB over the raw events, with window arithmetic of its own."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import duckdb

from deploy.demo.query import COLUMNS, WINDOW_S
from rhino.errors import IntegrityError


@dataclass(frozen=True, slots=True)
class Verdict:
    """Rows of the query's output against DuckDB's answer, as multisets."""

    rows: int  # of the output
    missing: int  # in DuckDB's answer only: lost
    extra: int  # in the output only: duplicated or wrong

    @property
    def equal(self) -> bool:
        return self.missing == 0 and self.extra == 0


def committed_files(output: Path) -> list[Path]:
    """Files of a Structured Streaming file sink that its log names; others are left-overs of failed tasks.

    Log files are "<batch>" and "<batch>.compact" (everything up to that batch), a line "v1" before JSON lines.
    """
    logs = [p for p in (output / "_spark_metadata").iterdir() if p.name.removesuffix(".compact").isdigit()]
    newest_compact = max((_batch(p) for p in logs if p.suffix == ".compact"), default=-1)
    paths: set[Path] = set()
    for log in (p for p in logs if _batch(p) >= newest_compact):
        version, *entries = log.read_text().splitlines()
        if version != "v1":
            raise IntegrityError(f"{log}: sink log of version {version!r}, expected 'v1'")
        for entry in entries:
            status = json.loads(entry)
            if status["action"] == "add":
                paths.add(output / Path(status["path"]).name)
    return sorted(paths)


def _batch(log: Path) -> int:
    return int(log.name.removesuffix(".compact"))


def compare(persons: Path, auctions: Path, output: Path) -> Verdict:
    """Compares the output of `nbq8` with DuckDB's answer over the parquet folders of raw events."""
    with duckdb.connect() as db:
        _views(db, persons, auctions)
        files = [str(p) for p in committed_files(output) if p.stat().st_size]
        db.execute(f"create temp table got as select {', '.join(COLUMNS)} from read_parquet($files)", {"files": files})
        db.execute(f"create temp table expected as {_EXPECTED}")
        rows = _count(db, "got")
        missing = _count(db, "(select * from expected except all select * from got)")
        extra = _count(db, "(select * from got except all select * from expected)")
    return Verdict(rows, missing, extra)


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


def _count(db: duckdb.DuckDBPyConnection, relation: str) -> int:
    row = db.execute(f"select count(*) from {relation}").fetchone()
    assert row is not None
    return int(row[0])
