"""Medians of recoveries per subject and size, and their ratios to Rhino's."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from rich.table import Table

from benchmarks.cells import Row
from benchmarks.recovery.loss import Recovery

_TIMES = (
    *("steady_batch_ms", "lease_ended", "detected", "scheduled", "prepared", "fetch_slowest", "open_slowest"),
    *("load_slowest", "loaded", "next_batch", "prepare_slowest", "prepare_p50", "prepare_p99", "copied_bytes"),
    *("network_bytes", "disk_reads", "replayed"),
)
_COLUMNS = (
    *("state GB", "subject", "runs", "steady batch", "lease ended", "detected", "scheduled", "fetching", "prepared"),
    *("open", "loading", "replayed", "loaded", "next batch", "beside Rhino", "Prepare p50, p99", "MB copied or linked"),
    *("MB over the network", "disk reads"),
)


def summarise(results: Sequence[Recovery]) -> list[Row]:
    """One row per size and subject, in milliseconds and bytes. `ratio`: of the time until the next batch was done."""
    rows: list[Row] = []
    for size, subject in dict.fromkeys((r.state_bytes, r.subject) for r in results):
        mine = [r for r in results if (r.state_bytes, r.subject) == (size, subject)]
        beside = subject.replace("stock", "rhino")
        rhino = [r for r in results if (r.state_bytes, r.subject) == (size, beside)]
        row: Row = {"state_bytes": size, "subject": subject, "runs": len(mine)}
        row |= {name: statistics.median(getattr(r, name) for r in mine) for name in _TIMES}
        row["sources"] = "+".join(sorted({r.sources for r in mine}))
        pairs = list(zip(mine, rhino, strict=False))
        row["ratio"] = statistics.median(a.next_batch / b.next_batch for a, b in pairs) if pairs else None
        rows.append(row)
    return sorted(rows, key=lambda row: (row["state_bytes"], row["subject"]))


def table(rows: Sequence[Row]) -> Table:
    """Seconds after the loss; the slowest partition's milliseconds for fetching, open, loading (open, replay), Prepare.

    Rhino's table 1 calls them scheduling, state fetching and state loading.
    """
    shown = Table(*_COLUMNS)
    for row in rows:
        shown.add_row(
            f"{row['state_bytes'] / 1e9:g}",
            row["subject"],
            str(row["runs"]),
            f"{row['steady_batch_ms']:.0f} ms",
            f"{row['lease_ended'] / 1000:.2f} s" if row["lease_ended"] else "",
            *(f"{row[name] / 1000:.2f} s" for name in ("detected", "scheduled")),
            f"{row['fetch_slowest']:.0f} ms",
            f"{row['prepared'] / 1000:.2f} s",
            *(f"{row[name]:.0f} ms" for name in ("open_slowest", "load_slowest")),
            f"{row['replayed']:.0f}",
            *(f"{row[name] / 1000:.2f} s" for name in ("loaded", "next_batch")),
            "" if row["ratio"] is None else f"{row['ratio']:.2f} x",
            f"{row['prepare_p50']:.1f}, {row['prepare_p99']:.1f} ms" if row["prepare_p50"] else "",
            *(f"{row[name] / 1e6:.0f}" for name in ("copied_bytes", "network_bytes")),
            f"{row['disk_reads']:.0f}",
        )
    return shown
