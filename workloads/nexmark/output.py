"""Compares the output of a streaming query with expected rows: nothing may be missing, duplicated or invented."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import duckdb

from rhino_core.errors import IntegrityError


@dataclass(frozen=True, slots=True)
class Verdict:
    """Comparison of a query's output with an independent answer, as multisets of rows."""

    rows: int  # of the output
    missing: int  # in the answer only: lost
    extra: int  # in the output only: duplicated or wrong

    @property
    def equal(self) -> bool:
        return self.missing == 0 and self.extra == 0


def committed_files(output: Path) -> list[Path]:
    """Returns the files that a Structured Streaming file sink's log names. Other files are left over from failed tasks.

    Log files are "<batch>" and "<batch>.compact" (everything up to that batch): a line "v1", then JSON lines.
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


def load(db: duckdb.DuckDBPyConnection, table: str, output: Path, columns: Sequence[str]) -> None:
    """Creates `table` with `columns` from the committed rows of a file sink."""
    files = [str(p) for p in committed_files(output) if p.stat().st_size]
    db.execute(f"create table {table} as select {', '.join(columns)} from read_parquet($files)", {"files": files})


def compare(db: duckdb.DuckDBPyConnection, got: str, expected: str) -> Verdict:
    """Compares two tables by EXCEPT ALL in both directions."""
    missing = count(db, f"(select * from {expected} except all select * from {got})")
    extra = count(db, f"(select * from {got} except all select * from {expected})")
    return Verdict(count(db, got), missing, extra)


def count(db: duckdb.DuckDBPyConnection, relation: str) -> int:
    row = db.execute(f"select count(*) from {relation}").fetchone()
    assert row is not None
    return int(row[0])
