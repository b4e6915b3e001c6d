"""Medians of moves per subject and size."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from rich.table import Table

from benchmarks.cells import Row
from benchmarks.handover.move import Moved

_FIGURES = (
    *("partitions", "steps", "steady_batch", "during_batch", "switch_batch", "switch_median", "added_pause"),
    *("after_batch", "total", "scheduled", "prepared", "loaded", "next_batch"),
    *("bytes_before_switch", "bytes_at_switch"),
    *("prepare_slowest", "fetch_slowest", "open_slowest", "load_slowest", "replayed"),
)
_COLUMNS = (
    *("state GB", "subject", "moves", "partitions", "steps", "steady", "during", "switch", "switch / steady"),
    *("highest", "longest / steady", "longest switch", "added pause", "after", "total"),
    *("MB before switch", "MB at switch", "Prepare", "fetching", "open", "loading", "replayed"),
)
_PHASES = ("scheduled", "prepared", "loaded", "next_batch")


def summarise(results: Sequence[Moved]) -> list[Row]:
    """One row per size and subject, in milliseconds and bytes."""
    rows: list[Row] = []
    for size, subject in dict.fromkeys((r.state_bytes, r.subject) for r in results):
        mine = [r for r in results if (r.state_bytes, r.subject) == (size, subject)]
        row: Row = {"state_bytes": size, "subject": subject, "moves": len(mine)}
        row |= {name: statistics.median(getattr(r, name) for r in mine) for name in _FIGURES}
        ratios = [r.ratio for r in mine]
        row |= {"switch_ratio": statistics.median(ratios), "switch_ratio_max": max(ratios)}
        row["longest_ratio"] = statistics.median(r.longest_ratio for r in mine)
        rows.append(row)
    return sorted(rows, key=lambda row: (row["state_bytes"], row["subject"]))


def table(rows: Sequence[Row]) -> Table:
    """Milliseconds; Prepare, fetching, open and loading (open, replay) are the slowest partition's."""
    shown = Table(*_COLUMNS)
    for row in rows:
        shown.add_row(
            f"{row['state_bytes'] / 1e9:g}",
            row["subject"],
            f"{row['moves']}",
            *(f"{row[name]:g}" for name in ("partitions", "steps")),
            *(f"{row[name]:.0f}" for name in ("steady_batch", "during_batch", "switch_median")),
            *(f"{row[name]:.2f}" for name in ("switch_ratio", "switch_ratio_max", "longest_ratio")),
            *(f"{row[name]:.0f}" for name in ("switch_batch", "added_pause", "after_batch")),
            f"{row['total'] / 1000:.1f} s",
            *(f"{row[name] / 1e6:.0f}" for name in ("bytes_before_switch", "bytes_at_switch")),
            f"{row['prepare_slowest']:.1f}",
            *(f"{row[name]:.0f}" for name in ("fetch_slowest", "open_slowest", "load_slowest", "replayed")),
        )
    return shown


def phases(rows: Sequence[Row]) -> Table:
    """The switch step by step, in milliseconds after the marker (without Rhino: after the request)."""
    shown = Table("state GB", "subject", *_PHASES, "MB at switch")
    for row in rows:
        times = (f"{row[name]:.0f}" for name in _PHASES)
        shown.add_row(f"{row['state_bytes'] / 1e9:g}", row["subject"], *times, f"{row['bytes_at_switch'] / 1e6:.0f}")
    return shown
