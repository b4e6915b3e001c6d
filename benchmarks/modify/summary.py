"""Medians of the changes of each load."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from rich.table import Table

from benchmarks.modify.changes import Changed

Row = dict[str, Any]


def changes_of(results: Sequence[Changed]) -> list[Row]:
    """One row per load. `in_time`: how many were in force within one batch and 0.2 s.

    `with_the_next`: with the next batch. `lower_ratio` and `upper_ratio` are the quartiles. `before_ratio`: the same
    ratio of the batch before the first one in force. `longest_pause_ms`: between these two.
    """
    rows = []
    for load in dict.fromkeys(result.load for result in results):
        mine = [result for result in results if result.load == load]
        row: Row = {"load": load, "changes": len(mine)}
        row |= {name: _median(mine, name) for name in ("steady_ms", "wait_ms", "done_ms", "switch_ms", "ratio")}
        row["longest_wait_ms"] = max(result.wait_ms for result in mine)
        ratios = [result.ratio for result in mine]
        row["lower_ratio"], _, row["upper_ratio"] = _quartiles(ratios)
        row["highest_ratio"] = max(ratios)
        row["longest_pause_ms"] = max(result.pause_ms for result in mine)
        row["in_time"] = sum(result.in_time for result in mine)
        row["before_ratio"] = statistics.median(result.before_ms / result.steady_ms for result in mine)
        row["with_the_next"] = sum(result.skipped == 0 for result in mine)
        rows.append(row)
    return rows


def _median(results: Sequence[Changed], name: str) -> float:
    return float(statistics.median(getattr(result, name) for result in results))


def _quartiles(values: Sequence[float]) -> list[float]:
    return statistics.quantiles(values, method="inclusive") if len(values) > 1 else [*values] * 3


def table(changes: Sequence[Row]) -> Table:
    shown = Table(
        *("load", "changes", "steady batch", "until the first batch in force begins", "longest", "until it is done"),
        *(
            "the batch that switches",
            "ratio",
            "quartiles",
            "highest",
            "the batch before it",
            "longest pause before it",
            "in time",
            "with the next batch",
        ),
    )
    for row in changes:
        times = (f"{row[name]:.0f} ms" for name in ("steady_ms", "wait_ms", "longest_wait_ms", "done_ms", "switch_ms"))
        quartiles = f"{row['lower_ratio']:.2f} to {row['upper_ratio']:.2f}"
        ratios = (quartiles, *(f"{row[name]:.2f}" for name in ("highest_ratio", "before_ratio")))
        figures = f"{row['ratio']:.2f}", *ratios, f"{row['longest_pause_ms']:.0f} ms"
        counts = (f"{row[name]} of {row['changes']}" for name in ("in_time", "with_the_next"))
        shown.add_row(row["load"], str(row["changes"]), *times, *figures, *counts)
    return shown
