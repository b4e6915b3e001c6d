"""Medians of recoveries per subject and size, and their ratios to Rhino's."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from rich.table import Table

from benchmarks.cells import Row
from benchmarks.flink.loss import Recovery

_FIGURES = ("held_bytes", "seen", "running", "committed")


def summarise(results: Sequence[Recovery]) -> list[Row]:
    """One row per size and subject, in milliseconds and bytes. `ratio`: of the time until all tasks ran again."""
    rows: list[Row] = []
    for size, subject in sorted({(r.state_bytes, r.subject) for r in results}):
        mine = [r for r in results if (r.state_bytes, r.subject) == (size, subject)]
        rhino = [r for r in results if (r.state_bytes, r.subject) == (size, "rhino")]
        row: Row = {"state_bytes": size, "subject": subject, "runs": len(mine)}
        row |= {name: statistics.median(getattr(r, name) for r in mine) for name in _FIGURES}
        pairs = list(zip(mine, rhino, strict=False))
        row["ratio"] = statistics.median(a.running / b.running for a, b in pairs) if pairs else None
        rows.append(row)
    return rows


def table(rows: Sequence[Row]) -> Table:
    """Seconds after the kill."""
    shown = Table("state GB", "subject", "runs", "state held, MB", "seen", "running again", "beside Rhino", "committed")
    for row in rows:
        shown.add_row(
            f"{row['state_bytes'] / 1e9:g}",
            row["subject"],
            str(row["runs"]),
            f"{row['held_bytes'] / 1e6:.0f}" if row["held_bytes"] else "",
            *(f"{row[name] / 1000:.2f} s" for name in ("seen", "running")),
            "" if row["ratio"] is None else f"{row['ratio']:.2f} x",
            f"{row['committed'] / 1000:.2f} s",
        )
    return shown
