"""`python -m benchmarks.restart`: other code takes over a running query, and code that fails gives it back.

The query of benchmarks.recovery runs on three workers, with one secondary copy of its state (r = 1), by `supervise`.
Other code takes over in the same driver; with `--processes`, in another process with a driver and executors of its own.
A pause is the time from the last batch of the one to the first batch of the other, as the commit log says, without a
steady batch. Other code takes over that fails in its first batch. The way back is the time from its end to the first
batch of the former code, without a steady batch.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from rich.table import Table

from benchmarks.cells import Cells, Row, Say, parser, place_of, settled
from benchmarks.command import main, show
from benchmarks.restart.changes import Change, Changing
from benchmarks.stateful import Load

SUBJECT = "rhino"
FIGURES = ("steady_ms", "asked_ms", "grant_ms", "pause_ms", "back_ms")


def _measure(arguments: argparse.Namespace, subject: str, load: Load, folder: Path, say: Say) -> list[Change]:
    place = replace(place_of(subject), applications=2 if arguments.processes else 1)
    with settled(place, load, folder, say) as run:
        changing, found = Changing(run, arguments.processes), []
        for number in range(1, arguments.changes + 1):
            run.doing.what = f"change {number}"
            say(run.doing.what)
            found.append(changing.change(number))
        changing.stop()
        return found


def summarise(results: Sequence[Change]) -> list[Row]:
    """One row per size: medians."""
    rows: list[Row] = []
    for size in sorted({result.state_bytes for result in results}):
        mine = [result for result in results if result.state_bytes == size]
        row: Row = {"state_bytes": size, "changes": len(mine), "longest_ms": max(r.pause_ms for r in mine)}
        rows.append(row | {name: statistics.median(getattr(r, name) for r in mine) for name in FIGURES})
    return rows


def table(rows: Sequence[Row]) -> Table:
    shown = Table("state GB", "changes", "steady batch", "pause", "longest", "until granted", "back")
    for row in rows:
        shown.add_row(
            f"{row['state_bytes'] / 1e9:g}",
            str(row["changes"]),
            f"{row['steady_ms']:.0f} ms",
            *(f"{row[name] / 1000:.2f} s" for name in ("pause_ms", "longest_ms", "asked_ms", "back_ms")),
        )
    return shown


def _describe(result: Change) -> str:
    pauses = f"pause {result.pause_ms:.0f} ms, back {result.back_ms:.0f} ms"
    return f"change {result.change}: {pauses}, steady batch {result.steady_ms:.0f} ms"


def _run() -> None:
    options = parser("benchmarks.restart", __doc__, (SUBJECT,), (SUBJECT,))
    options.add_argument("--changes", type=int, default=3, help="of each cluster's query (default: 3)")
    options.add_argument("--processes", action="store_true", help="the new application is another process")
    arguments = options.parse_args()
    show(table(summarise(Cells(arguments, partial(_measure, arguments), summarise, _describe).run())))


if __name__ == "__main__":
    sys.exit(main(_run))
