"""Records of runs: `benchmarks/results/<name>.json`. docs/benchmarks/results.md is written from them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from rhino_core.errors import InvalidRequestError

RESULTS = Path(__file__).resolve().parents[1] / "results"
NOT_RECORDED = "not recorded"

Cell = str | int | float | bool | None


@dataclass(frozen=True, slots=True)
class FigureTable:
    """`title` may be empty."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]


@dataclass(frozen=True, slots=True)
class Record:
    """One run, or several of one kind. Facts not written down are NOT_RECORDED."""

    title: str
    benchmark: str  # package under `benchmarks` or `workloads`; decides the section of the page
    date: str  # ISO 8601, UTC
    machine: str
    commit: str
    load: str  # what else the machine did
    commands: Sequence[str]
    conditions: Sequence[str]  # paragraphs above the tables
    tables: Sequence[FigureTable]
    notes: Sequence[str]  # paragraphs below them


def read(path: Path) -> Record:
    """Raises InvalidRequestError if the file lacks a field or has an unknown one."""
    stored = json.loads(path.read_text())
    expected = {field.name for field in fields(Record)}
    if stored.keys() != expected:
        raise InvalidRequestError(f"{path}: the fields {sorted(stored.keys() ^ expected)} are missing or unknown")
    tables = [_table(path, table) for table in stored["tables"]]
    return Record(**(stored | {"tables": tables}))


def _table(path: Path, stored: Mapping[str, Any]) -> FigureTable:
    table = FigureTable(**stored)
    if uneven := [row for row in table.rows if len(row) != len(table.columns)]:
        raise InvalidRequestError(f"{path}: {uneven[0]} has not {len(table.columns)} cells")
    return table


def read_all(folder: Path = RESULTS) -> dict[str, Record]:
    """By name, newest first; records without a date come last."""
    found = {path.stem: read(path) for path in sorted(folder.glob("*.json"))}
    dated = [name for name, record in found.items() if record.date != NOT_RECORDED]
    dated.sort(key=lambda name: found[name].date, reverse=True)
    return {name: found[name] for name in [*dated, *(name for name in found if name not in dated)]}


def write(record: Record, name: str, folder: Path = RESULTS) -> Path:
    path = folder / f"{name}.json"
    path.write_text(json.dumps(asdict(record), indent=1, ensure_ascii=False) + "\n")
    return path
