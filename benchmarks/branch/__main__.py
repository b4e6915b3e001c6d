"""`python -m benchmarks.branch`: branches of a running query, as `rhino branch` makes them.

The query of benchmarks.recovery runs on three workers, with one secondary copy of its state (r = 1). It is branched
several times after its newest batch, and each branch is forgotten afterwards. "batches during": of the query, those
that overlap with a branch being made, beside the ones before.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from rich.table import Table

from benchmarks.cells import Cells, Row, Say, parser, place_of, settled
from benchmarks.command import main, show
from benchmarks.stateful import Load, Running
from rhino import HandoverClient, branch
from rhino.client.overview import fetch_overview
from rhino.testing.query_watch import Batch

SUBJECT = "rhino"
STEADY = 20  # batches before a branch
AFTER = 5


@dataclass(frozen=True, slots=True)
class Branched:
    """One branch. `moved_bytes`: what all workers received for replication meanwhile, also for the query's batches."""

    state_bytes: int
    branch: int
    branch_ms: float
    files: int
    linked_bytes: int
    moved_bytes: int
    steady_ms: float
    during_ms: float
    after_ms: float

    @property
    def during_ratio(self) -> float:
        return self.during_ms / self.steady_ms


def _measure(branches: int, subject: str, load: Load, folder: Path, say: Say) -> list[Branched]:
    with settled(place_of(subject), load, folder, say) as run:
        return [_branch(run, number, folder / f"branch-{number}") for number in range(1, branches + 1)]


def _branch(run: Running, number: int, target: Path) -> Branched:
    run.wait_between_snapshots()
    run.doing.what = f"branch {number}"
    manager, before = run.cluster.manager, _received(run)
    began_ms = time.time_ns() / 1e6
    made = branch(manager, run.checkpoint, target)
    ended_ms = time.time_ns() / 1e6
    moved = _received(run) - before
    run.watch.wait_for_batch(run.watch.committed() + AFTER + 1)
    batches = [b for b in run.watch.batches(run.watch.committed()) if b.batch_id > run.load.building_batches]
    during = [b for b in batches if b.started_ms < ended_ms and b.ended_ms > began_ms]
    with HandoverClient(manager) as client:
        client.forget_job(made.job, now=True)
    return Branched(
        run.load.state_bytes,
        number,
        made.duration_s * 1000,
        made.files,
        made.linked_bytes,
        moved,
        _median([b for b in batches if b.ended_ms <= began_ms][-STEADY:]),
        _median(during),
        _median([b for b in batches if b.started_ms >= ended_ms]),
    )


def _received(run: Running) -> int:
    return sum(worker.replicated_bytes for worker in fetch_overview(run.cluster.manager).workers)


def _median(batches: Sequence[Batch]) -> float:
    return float(statistics.median(b.duration_ms for b in batches))


def summarise(results: Sequence[Branched]) -> list[Row]:
    """One row per size: medians."""
    names = ("branch_ms", "files", "linked_bytes", "moved_bytes", "steady_ms", "during_ms", "after_ms", "during_ratio")
    rows: list[Row] = []
    for size in sorted({result.state_bytes for result in results}):
        mine = [result for result in results if result.state_bytes == size]
        row: Row = {"state_bytes": size, "branches": len(mine), "longest_ms": max(r.branch_ms for r in mine)}
        rows.append(row | {name: statistics.median(getattr(r, name) for r in mine) for name in names})
    return rows


def table(rows: Sequence[Row]) -> Table:
    shown = Table(
        *("state GB", "branches", "branch", "longest", "files linked", "MB linked", "MB received"),
        *("steady batch", "batches during", "ratio", "batches after"),
    )
    for row in rows:
        shown.add_row(
            f"{row['state_bytes'] / 1e9:g}",
            str(row["branches"]),
            *(f"{row[name] / 1000:.2f} s" for name in ("branch_ms", "longest_ms")),
            f"{row['files']:.0f}",
            *(f"{row[name] / 1e6:.1f}" for name in ("linked_bytes", "moved_bytes")),
            *(f"{row[name]:.0f} ms" for name in ("steady_ms", "during_ms")),
            f"{row['during_ratio']:.2f}",
            f"{row['after_ms']:.0f} ms",
        )
    return shown


def _describe(result: Branched) -> str:
    files = f"{result.files} files, {result.linked_bytes / 1e6:.0f} MB linked"
    return f"branch {result.branch}: {result.branch_ms:.0f} ms, {files}"


def _run() -> None:
    options = parser("benchmarks.branch", __doc__, (SUBJECT,), (SUBJECT,))
    options.add_argument("--branches", type=int, default=3, help="of each cluster's query (default: 3)")
    arguments = options.parse_args()
    show(table(summarise(Cells(arguments, partial(_measure, arguments.branches), summarise, _describe).run())))


if __name__ == "__main__":
    sys.exit(main(_run))
