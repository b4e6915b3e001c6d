"""`python -m benchmarks.adaptation`: adaptation in mode `act` on simulated clusters, under seeded traces of load.

A trace is 260 batches, 22 minutes of simulated time, on 2 to 6 workers: a step, a ramp, days and nights, a flash crowd,
a hot spot that moves on, or an even load. Some traces have a slow worker, a backlog, the loss of a zone, or uneven rows
and bytes of state besides, and the manager is restarted now and then. In no trace a virtual node may go back within
its cool-down, except with a plan that is taken back, nor move on unless its load has risen; no plan may begin while the
query catches up or copies are lacking; moves stay within the budget; no goal undoes the moves of another one; and a
load that no longer changes ends balanced. The exit code is 1 if any trace breaks that. max/mean is the task time of the
busiest worker over the mean, at the end of a trace: with adaptation, and as it would be if nothing had moved.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import resource
import sys
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

from rich.console import Console
from rich.table import Table

from benchmarks.adaptation.seen import Seen, observed_seed
from benchmarks.command import main, show
from rhino_core.errors import RhinoError
from workloads.adaptation import traces
from workloads.machine import machine

NAMED = 50  # problems that are printed


@dataclass(frozen=True, slots=True)
class Row:
    """Traces of a kind. `before`, `after`: medians of max/mean. A trace may be of several kinds."""

    kind: str
    traces: int
    plans: int
    moves: int
    helped: int
    returned: int
    before: float | None
    after: float
    after_p95: float
    problems: int


def _run() -> None:
    arguments = _arguments()
    began, seen, console = time.monotonic(), list[Seen](), Console(stderr=True)
    with multiprocessing.get_context("spawn").Pool(arguments.jobs) as pool:
        for one in pool.imap(observed_seed, range(arguments.first, arguments.first + arguments.traces), chunksize=10):
            seen.append(one)
            if len(seen) % 500 == 0:
                console.print(f"{len(seen)} traces, {time.monotonic() - began:.0f} s")
        pool.close()
        pool.join()
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    rows, checks = rows_of(seen), counted(seen)
    show(_table(rows))
    show(_checks(checks))
    if arguments.json:
        command = " ".join(["python -m benchmarks.adaptation", *sys.argv[1:]])
        report = {"command": command, "machine": machine(), "traces": [asdict(row) for row in rows]}
        report["checks"] = [{"problem": name, "times": times} for name, times in checks.items()]
        report["run"] = {"traces": len(seen), "cpu_s": used.ru_utime + used.ru_stime}
        arguments.json.write_text(json.dumps(report, indent=2) + "\n")
    named = [f"{one.name}: {problem}" for one in seen for found in one.problems.values() for problem in found]
    if named:
        raise RhinoError(f"{len(named)} problems: " + "; ".join(named[:NAMED]))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.adaptation", description=__doc__)
    parser.add_argument("--traces", type=int, default=10_000)
    parser.add_argument("--first", type=int, default=0, metavar="SEED", help="of the first trace")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes (%(default)s)")
    parser.add_argument("--json", type=Path, help="write all results there")
    return parser.parse_args()


def rows_of(seen: Sequence[Seen]) -> list[Row]:
    """One row for each kind, and one for all."""
    kinds = list(dict.fromkeys(kind for one in seen for kind in one.kinds))
    shapes = [shape.__name__.replace("_", " ") for shape in traces.SHAPES]
    ordered = sorted(kinds, key=lambda kind: shapes.index(kind) if kind in shapes else len(shapes))
    return [_row(kind, [one for one in seen if kind in one.kinds]) for kind in ordered] + [_row("all", seen)]


def _row(kind: str, seen: Sequence[Seen]) -> Row:
    after = sorted(one.after for one in seen)
    before = [one.before for one in seen if one.before is not None]
    return Row(
        kind,
        len(seen),
        sum(one.plans for one in seen),
        sum(one.moves for one in seen),
        sum(one.helped for one in seen),
        sum(one.returned for one in seen),
        median(before) if before else None,
        median(after),
        after[int(0.95 * (len(after) - 1))],
        sum(len(found) for one in seen for found in one.problems.values()),
    )


def counted(seen: Iterable[Seen]) -> dict[str, int]:
    """How often each problem occurred."""
    found = Counter[str]()
    for one in seen:
        found.update({name: len(problems) for name, problems in one.problems.items()})
    return dict(found)


def _table(rows: Sequence[Row]) -> Table:
    table = Table(
        "trace", "traces", "plans", "moves", "helped", "returned", "max/mean unmoved", "after", "95 %", "problems"
    )
    for row in rows:
        before = "-" if row.before is None else f"{row.before:.2f}"
        counts = [f"{value}" for value in (row.traces, row.plans, row.moves, row.helped, row.returned)]
        table.add_row(row.kind, *counts, before, f"{row.after:.2f}", f"{row.after_p95:.2f}", f"{row.problems}")
    return table


def _checks(checks: dict[str, int]) -> Table:
    table = Table("problem", "times")
    for name, times in checks.items():
        table.add_row(name, f"{times}")
    return table


if __name__ == "__main__":
    sys.exit(main(_run))
