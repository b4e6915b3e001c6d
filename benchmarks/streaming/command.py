"""What the commands of streaming benchmarks share: options, progress, a table, a JSON report and the exit code."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.errors import PySparkException
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from benchmarks.machine import machine
from benchmarks.streaming import trial
from benchmarks.streaming.faults import FAULTS
from benchmarks.streaming.job import Job
from benchmarks.streaming.place import place
from benchmarks.streaming.trial import Trial
from deploy.demo.watch import DemoError
from rhino.errors import RhinoError

EXIT_WRONG = 1


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--provider", choices=("rhino", "stock"), default="rhino", help="who keeps the state")
    parser.add_argument("--cluster", action="store_true", help="on a cluster of three local workers, not in local[2]")
    parser.add_argument(
        "--fault",
        default="",
        metavar="F,F",
        help="what happens on the way, in this order: restart; with --cluster also kill (-9 of an executor) and "
        "handover (of half of a worker's virtual nodes)",
    )
    parser.add_argument("--dir", type=Path, help="where to work (default: a temporary folder)")
    parser.add_argument("--keep", action="store_true", help="keep checkpoints, output and logs in --dir")
    parser.add_argument("--json", type=Path, help="write all results there")


def checked_faults(parser: argparse.ArgumentParser, arguments: argparse.Namespace) -> list[str]:
    """Exits with code 2 for faults that the run cannot have."""
    kinds = [kind for kind in arguments.fault.split(",") if kind]
    for kind in kinds:
        if kind not in FAULTS:
            parser.error(f"--fault {kind}: choose from {', '.join(FAULTS)}")
        if kind != "restart" and not arguments.cluster:
            parser.error(f"--fault {kind} needs --cluster")
        if kind == "handover" and arguments.provider != "rhino":
            parser.error("--fault handover needs --provider rhino")
    if arguments.keep and not arguments.dir:
        parser.error("--keep needs --dir")
    return kinds


def run_all(
    jobs: Sequence[Job],
    kinds: Sequence[str],
    arguments: argparse.Namespace,
    command: str,
    more: Callable[[Trial, Path], dict[str, Any]] = lambda trial, output: {},
) -> int:
    """Runs the jobs one after the other in one session; 0 when every output is right, else 1.

    `more(trial, output)`: further figures of a trial, for the report.
    """
    console = Console(stderr=True)
    report: dict[str, Any] = {"command": " ".join([command, *sys.argv[1:]]), "machine": machine(), "trials": []}
    folder = Path(tempfile.mkdtemp(prefix="rhino-streaming-", dir=arguments.dir)).resolve()
    problems: list[str] = []
    table = _table()
    try:
        with place(folder, cluster=arguments.cluster, provider=arguments.provider) as where, _progress(console) as bar:
            for job in jobs:
                task = bar.add_task(job.name, total=job.goal)
                try:
                    done = trial.run(job, where, folder / job.name, kinds, partial(_show, bar, task))
                except (DemoError, PySparkException) as error:
                    problems.append(f"{job.name}: {error}")
                    continue
                figures = more(done, folder / job.name / "output")
                report["trials"].append(done.as_json() | figures)
                if figures:
                    console.print_json(data=figures)
                problems += _problems(done)
                _add_row(table, done)
    except RhinoError as error:
        problems.append(str(error))
    finally:
        if arguments.keep:
            console.print(f"data and logs are in {folder}")
        else:
            shutil.rmtree(folder, ignore_errors=True)
    Console().print(table)
    for problem in problems:
        console.print(f"[bold red]FAILED[/] {problem}", highlight=False, soft_wrap=True)
    report["problems"] = problems
    if arguments.json:
        arguments.json.write_text(json.dumps(report, indent=2) + "\n")
    return EXIT_WRONG if problems else 0


def _show(bar: Progress, task: TaskID, position: int) -> None:
    bar.update(task, completed=position)


def _problems(done: Trial) -> list[str]:
    found = []
    if not done.verdict.equal:
        found.append(f"{done.job}: {done.verdict.missing} rows missing, {done.verdict.extra} extra")
    if not done.verdict.rows:
        found.append(f"{done.job}: the output has no rows")
    if done.timeline.dropped:
        found.append(f"{done.job}: {done.timeline.dropped} rows were dropped as too late")
    return found


def _progress(console: Console) -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    return Progress(*columns, console=console)


def _table() -> Table:
    return Table("job", "events", "rows", "missing", "extra", "batch p50 ms", "state rows", "faults")


def _add_row(table: Table, done: Trial) -> None:
    facts = done.as_json()
    faults = ", ".join(f"{f.kind} {(f.ended_ms - f.started_ms) / 1000:.1f} s" for f in done.timeline.faults)
    p50 = f"{facts['batch_ms_p50']:.0f}" if facts["batch_ms_p50"] is not None else ""
    counts = (facts["events"], facts["rows"], facts["missing"], facts["extra"])
    table.add_row(done.job, *(f"{n:,}" for n in counts), p50, f"{facts['state_rows_max']:,}", faults)
