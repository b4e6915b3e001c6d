"""`python -m benchmarks.balance`: a cluster with automatic balance (`rhino manager --adaptation act`).

NBQ8 runs on four workers. At first all sellers have as many auctions; then they have them by Zipf's law, and there are
1.5 times as many. Reported are the time until the busiest worker is within the band of the mean again, and the moves.
The output is compared with DuckDB; the exit code is 1 if it is not exact. The bar: balanced within 60 s. `passed` says
whether it is reached. Rows are held a little, as few cores cannot give each worker a processor: the control loop is
measured, not the machine.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from benchmarks.balance import step
from benchmarks.balance.observed import windows
from benchmarks.balance.running import Place, Say, Seen
from benchmarks.command import main, show
from rhino import BatchLoad
from rhino_core.errors import RhinoError
from rhino_model.codec import plain
from workloads.machine import machine

PARTITIONS = 12
Row = dict[str, Any]


def _run() -> None:
    arguments = _arguments()
    report: Row = {"command": " ".join(sys.orig_argv[1:]), "machine": machine()}
    columns = SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn()
    with _folder(arguments) as folder, Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("")

        def say(what: str) -> None:
            progress.update(task, description=what)

        row, details, passed = _step(arguments, folder / "step", say)
        report |= {"step": row | {"passed": passed}, "step_details": details}
        if arguments.json:
            arguments.json.write_text(json.dumps(report, indent=2) + "\n")
        show(_table(report["step"]))
    if row["missing"] or row["extra"]:
        raise RhinoError("the output is not that of DuckDB")
    if not passed and arguments.bars:
        raise RhinoError("the bar is missed")


def _step(arguments: argparse.Namespace, folder: Path, say: Say) -> tuple[Row, Row, bool]:
    # One slot each: tasks of a worker do not make each other slower, and the batch waits for the busiest worker.
    place = Place(4, 1, PARTITIONS, arguments.trigger_s, tuple(arguments.manager_options))
    sizes = step.Sizes(arguments.rows, arguments.hold_ms, arguments.before, arguments.after)
    seen = step.measure(folder, sizes, place, say)
    found = step.figures(seen, sizes.load(), place.trigger_s)
    return asdict(found), _details(seen), found.passed


def _details(seen: Seen) -> Row:
    """The basis of the figures."""
    return {
        "batches": [asdict(batch) for batch in seen.batches],
        "windows": [asdict(window) for window in windows(seen.heard)],
        "decisions": plain(seen.decisions),
        "handovers": [
            {"id": one.handover_id, "phase": one.phase.value, "ms": [one.started_ms, one.finished_ms], "by": one.by}
            for one in seen.handovers
        ],
        "heard": [_heard(one.at_ms, one.load) for one in seen.heard],
    }


def _heard(at_ms: int, load: BatchLoad) -> Row:
    tasks = {node.virtual_node: (node.desired_worker, node.task_s) for node in load.virtual_nodes}
    return {"at_ms": at_ms, "batch": load.batch_id, "rows": load.input_rows, "batch_s": load.batch_s, "tasks": tasks}


def _table(row: Row) -> Table:
    table = Table("figure", "step")
    for name, value in row.items():
        table.add_row(name, "-" if value is None else f"{value:.3g}" if isinstance(value, float) else str(value))
    return table


@contextmanager
def _folder(arguments: argparse.Namespace) -> Iterator[Path]:
    """A folder to work in. With `--keep` it stays."""
    if arguments.keep:
        kept = Path(tempfile.mkdtemp(prefix="rhino-balance-", dir=arguments.dir)).resolve()
        Console(stderr=True).print(f"data and logs are in {kept}", highlight=False, soft_wrap=True)
        yield kept
        return
    with tempfile.TemporaryDirectory(prefix="rhino-balance-", dir=arguments.dir) as folder:
        yield Path(folder).resolve()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.balance", description=__doc__)
    parser.add_argument("--trigger-s", type=float, default=2.0, help="trigger interval (default: 2)")
    parser.add_argument("--hold-ms", type=int, default=6, help="how long a row is held (default: 6)")
    parser.add_argument("--rows", type=int, default=300, help="auctions of a batch at first (default: 300)")
    parser.add_argument("--before", type=int, default=40, help="batches before the step (default: 40)")
    parser.add_argument("--after", type=int, default=60, help="batches after the step (default: 60)")
    parser.add_argument("--manager-options", nargs="*", default=[], help="further options, each as --name=value")
    parser.add_argument("--bars", action="store_true", help="exit code 1 also if the bar is missed")
    parser.add_argument("--dir", type=Path, help="where to work")
    parser.add_argument("--keep", action="store_true", help="keep data and logs")
    parser.add_argument("--json", type=Path, help="write all results there")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main(_run))
