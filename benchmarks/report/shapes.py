"""Finds the tables in any benchmark's JSON, by their shape alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

LONGEST_TABLE = 60
_APART = ("machine", "command", "problems")  # shown in their own places
_ROUNDS = ("rounds", "results")


@dataclass(frozen=True, slots=True)
class Table:
    """`rows`: one mapping of plain values per row."""

    title: str
    rows: Sequence[Mapping[str, Any]]

    @property
    def columns(self) -> list[str]:
        return list(dict.fromkeys(name for row in self.rows for name in row))


def tables(report: Mapping[str, Any]) -> list[Table]:
    """Lists of flat rows, rows of nested ones by their plain values, and groups of plain values."""
    return [table for name, value in report.items() if name not in _APART for table in _tables(name, value)]


def summaries(report: Mapping[str, Any]) -> list[Table]:
    """Tables without the single rounds if a table of medians stands beside them."""
    found = tables(report)
    medians = {table.title.removesuffix("median") for table in found if table.title.endswith("median")}
    rounds = {f"{beside}{name}" for beside in medians for name in _ROUNDS}
    return [table for table in found if table.title not in rounds]


def _tables(title: str, value: Any) -> Iterator[Table]:
    if _is_rows(value):
        plain = [_plain(row) for row in value]
        if len(value) <= LONGEST_TABLE and any(plain):
            yield Table(title, plain)
    elif isinstance(value, Mapping):
        if plain_values := _plain(value):
            yield Table(title, [plain_values])
        for name, inner in value.items():
            yield from _tables(f"{title}: {name}", inner)


def _is_rows(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(row, Mapping) for row in value)


def _plain(row: Mapping[str, Any]) -> dict[str, Any]:
    """Plain values, and those of mappings in it under both names."""
    found: dict[str, Any] = {}
    for name, value in row.items():
        if isinstance(value, Mapping):
            found |= {f"{name} {inner}": v for inner, v in value.items() if _is_plain(v)}
        elif _is_plain(value):
            found[name] = value
    return found


def _is_plain(value: Any) -> bool:
    return value is None or isinstance(value, str | int | float | bool)
