"""Options, progress display and exit code, shared by the workloads' commands."""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.errors import PySparkException
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from rhino.testing.query_watch import RunError
from rhino_core.errors import RhinoError
from workloads.trial import whole
from workloads.trial.faults import FAULTS
from workloads.trial.job import Job
from workloads.trial.place import place
from workloads.trial.results import Results
from workloads.trial.whole import Trial

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
    parser.add_argument(
        "--interval",
        type=float,
        default=0.0,
        metavar="S",
        help="seconds from batch to batch (default: as fast as they go)",
    )
    parser.add_argument("--dir", type=Path, help="where to work (default: a temporary folder)")
    parser.add_argument("--keep", action="store_true", help="keep checkpoints, output and logs in --dir")
    parser.add_argument("--json", type=Path, help="write all results there")


def checked_faults(parser: argparse.ArgumentParser, arguments: argparse.Namespace) -> list[str]:
    """Returns the faults. Exits with code 2 for faults that are impossible in this run."""
    kinds = [kind for kind in arguments.fault.split(",") if kind]
    for kind in kinds:
        if kind not in FAULTS:
            parser.error(f"--fault {kind}: choose from {', '.join(FAULTS)}")
        if kind != "restart" and not arguments.cluster:
            parser.error(f"--fault {kind} needs --cluster")
        if kind == "handover" and arguments.provider != "rhino":
            parser.error("--fault handover needs --provider rhino")
    if arguments.interval < 0:
        parser.error("--interval must be 0 or more")
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
    """Runs the jobs one after the other in one session. Returns 0 when every output is right, else 1.

    `more(trial, output)` returns further measurements of a trial for the report.
    """
    console = Console(stderr=True)
    results = Results(" ".join([command, *sys.argv[1:]]), arguments.json)
    folder = Path(tempfile.mkdtemp(prefix="rhino-streaming-", dir=arguments.dir)).resolve()
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)  # cleans up like Ctrl-C
    try:
        with place(folder, cluster=arguments.cluster, provider=arguments.provider) as where, _progress(console) as bar:
            for job in jobs:
                task = bar.add_task(job.name, total=job.goal)
                try:
                    done = whole.run(
                        *(job, where, folder / job.name, kinds),
                        interval_s=arguments.interval,
                        on_poll=partial(_show, bar, task),
                    )
                except (RunError, PySparkException) as error:
                    results.failed(f"{job.name}: {error}")
                else:
                    results.add(done, more(done, folder / job.name / "output"))
    except RhinoError as error:
        results.failed(str(error))
    finally:
        signal.signal(signal.SIGTERM, before)
        if arguments.keep:
            console.print(f"data and logs are in {folder}")
        else:
            shutil.rmtree(folder, ignore_errors=True)
        results.show(console)
    return EXIT_WRONG if results.problems else 0


def _show(bar: Progress, task: TaskID, position: int) -> None:
    bar.update(task, completed=position)


def _progress(console: Console) -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    return Progress(*columns, console=console)
