"""`python -m benchmarks.shadow`: a shadow runs beside a live query, in a process with executors of its own.

The query of benchmarks.recovery runs on three workers, with one secondary copy of its state (r = 1), a batch each
interval, and keeps the output of each batch apart. A shadow with the same code runs and compares some batches on a
branch. Live batches beside it are compared with those before and after it. "late": from the end of a batch in the live
query to the shadow's commit of it. It is late from the start, because its first batches are slow. A shadow that is
later with each batch falls behind.
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
from benchmarks.shadow.live import WARM_UP, Beside, beside, live
from benchmarks.stateful import Load

SUBJECT = "rhino"
MOST_BATCHES = 18 - WARM_UP  # the logs of the branch keep 20
FIGURES = (
    *("without_ms", "with_ms", "ratio", "shadow_ms", "first_late_ms", "last_late_ms"),
    *("growth_ms", "behind"),
)


def _measure(arguments: argparse.Namespace, subject: str, load: Load, folder: Path, say: Say) -> list[Beside]:
    found = []
    with settled(replace(place_of(subject), applications=2), load, folder, say) as run:
        for interval_s in arguments.intervals:
            interval_ms = round(interval_s * 1000)
            with live(run, folder / "output", interval_ms):
                for number in range(1, arguments.shadows + 1):
                    run.doing.what = f"every {interval_s:g} s, shadow {number}"
                    say(run.doing.what)
                    target = folder / f"shadow-{interval_ms}-{number}"
                    found.append(beside(run, folder / "output", target, interval_ms, number, arguments.batches))
    return found


def summarise(results: Sequence[Beside]) -> list[Row]:
    """One row per size and interval: medians."""
    rows: list[Row] = []
    for size, interval in sorted({(result.state_bytes, result.interval_ms) for result in results}):
        mine = [one for one in results if (one.state_bytes, one.interval_ms) == (size, interval)]
        row: Row = {"state_bytes": size, "interval_ms": interval, "shadows": len(mine)}
        row |= {"highest_ratio": max(one.ratio for one in mine)}
        rows.append(row | {name: statistics.median(getattr(one, name) for one in mine) for name in FIGURES})
    return rows


def table(rows: Sequence[Row]) -> Table:
    shown = Table(
        *("state GB", "a batch each", "shadows", "without a shadow", "with it", "ratio", "highest"),
        *("a batch of the shadow", "first late", "last late", "later with each batch", "batches behind"),
    )
    for row in rows:
        shown.add_row(
            f"{row['state_bytes'] / 1e9:g}",
            f"{row['interval_ms'] / 1000:g} s",
            str(row["shadows"]),
            *(f"{row[name]:.0f} ms" for name in ("without_ms", "with_ms")),
            *(f"{row[name]:.2f}" for name in ("ratio", "highest_ratio")),
            *(f"{row[name] / 1000:.2f} s" for name in ("shadow_ms", "first_late_ms", "last_late_ms", "growth_ms")),
            f"{row['behind']:.0f}",
        )
    return shown


def _describe(result: Beside) -> str:
    costs = f"batches {result.without_ms:.0f} ms, {result.with_ms:.0f} ms with it"
    late = f"{result.first_late_ms / 1000:.1f} s late, in the end {result.last_late_ms / 1000:.1f} s"
    return f"every {result.interval_ms} ms, shadow {result.shadow}: {costs}; its own {result.shadow_ms:.0f} ms, {late}"


def _intervals(text: str) -> Sequence[float]:
    found = [float(part) for part in text.split(",")]
    if min(found) < 0:
        raise argparse.ArgumentTypeError(f"{text!r}: expected seconds, such as 0.5,2")
    return found


def _batches(text: str) -> int:
    if not text.isdecimal() or not 2 <= int(text) <= MOST_BATCHES:
        raise argparse.ArgumentTypeError(f"{text!r}: expected a number from 2 to {MOST_BATCHES}")
    return int(text)


def _run() -> None:
    options = parser("benchmarks.shadow", __doc__, (SUBJECT,), (SUBJECT,))
    options.add_argument(
        "--intervals", type=_intervals, default=[0.5, 2.0], help="seconds from a live batch to the next (0.5,2)"
    )
    options.add_argument("--shadows", type=int, default=2, help="of each interval and cluster (default: 2)")
    counting = f"of each shadow that count, after {WARM_UP} others (default: 12)"
    options.add_argument("--batches", type=_batches, default=12, help=counting)
    arguments = options.parse_args()
    show(table(summarise(Cells(arguments, partial(_measure, arguments), summarise, _describe).run())))


if __name__ == "__main__":
    sys.exit(main(_run))
