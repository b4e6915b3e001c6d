"""Finds in any benchmark's JSON what can be shown: tables, figures and timelines, by their shape alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

LONGEST_TABLE = 60
_APART = ("machine", "command", "problems")  # shown in their own places
_ROUNDS = ("rounds", "results")
_EVENTS = ("faults", "events", "marks")
_NAMES = ("job", "query", "subject", "scenario", "name", "provider", "strategy")


@dataclass(frozen=True, slots=True)
class Table:
    """`rows`: one mapping of plain values per row."""

    title: str
    rows: Sequence[Mapping[str, Any]]

    @property
    def columns(self) -> list[str]:
        return list(dict.fromkeys(name for row in self.rows for name in row))


@dataclass(frozen=True, slots=True)
class Mark:
    """Something that happened between two moments, in seconds since the first batch began."""

    label: str
    begin_s: float
    end_s: float


@dataclass(frozen=True, slots=True)
class Timeline:
    """Duration of each batch at the time at which it ended, in seconds."""

    title: str
    ends_s: list[float]
    durations_s: list[float]
    marks: list[Mark]


def tables(report: Mapping[str, Any]) -> list[Table]:
    """Lists of flat rows, rows of nested ones by their plain values, and groups of plain values."""
    return [table for name, value in report.items() if name not in _APART for table in _tables(name, value)]


def summaries(report: Mapping[str, Any]) -> list[Table]:
    """Tables without the single rounds, where a table of medians stands beside them."""
    found = tables(report)
    medians = {table.title.removesuffix("median") for table in found if table.title.endswith("median")}
    rounds = {f"{beside}{name}" for beside in medians for name in _ROUNDS}
    return [table for table in found if table.title not in rounds]


def timelines(value: Any, path: str = "") -> Iterator[Timeline]:
    """Whatever has `batches` with started_ms and duration_ms; `faults` or `events` beside them are its marks."""
    if isinstance(value, Mapping):
        batches = value.get("batches")
        if isinstance(batches, list) and _is_rows(batches) and {"started_ms", "duration_ms"} <= batches[0].keys():
            yield _timeline(value, path)
        for name, inner in value.items():
            yield from timelines(inner, f"{path} {name}".strip())
    elif isinstance(value, list):
        for inner in value:
            yield from timelines(inner, path)


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


def _timeline(value: Mapping[str, Any], path: str) -> Timeline:
    batches = sorted(value["batches"], key=lambda batch: batch["started_ms"])
    zero = batches[0]["started_ms"]
    names = [str(value[name]) for name in _NAMES if isinstance(value.get(name), str)]
    lists = [value[name] for name in _EVENTS if _is_rows(value.get(name))]  # elsewhere `events` is how many there were
    events = [event for rows in lists for event in rows if "started_ms" in event]
    return Timeline(
        title=", ".join(names) or path,
        ends_s=[(batch["started_ms"] + batch["duration_ms"] - zero) / 1000 for batch in batches],
        durations_s=[batch["duration_ms"] / 1000 for batch in batches],
        marks=[_mark(event, zero) for event in events],
    )


def _mark(event: Mapping[str, Any], zero_ms: int) -> Mark:
    label = str(event.get("kind") or event.get("what") or event.get("name") or "event")
    ended_ms = event.get("ended_ms") or event["started_ms"]
    return Mark(label, (event["started_ms"] - zero_ms) / 1000, (ended_ms - zero_ms) / 1000)
