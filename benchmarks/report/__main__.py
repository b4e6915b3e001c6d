"""`python -m benchmarks.report`: runs every benchmark quickly, and shows the tables of their reports.

JSON and logs are in OUT. Exit code 1: a benchmark failed, or found an output wrong. After an interruption `--resume`
goes on with the rest.

With `--against REF` each benchmark runs on this tree and on the revision REF in turns: a table has the ratio and a
verdict for each figure. Exit code 1 then also means that a figure is worse.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks import registry
from benchmarks.command import show
from benchmarks.registry import Run
from benchmarks.report import paired, running, shapes
from benchmarks.report.running import Result
from benchmarks.report.verdicts import FEWEST_PAIRS


def main(argv: Sequence[str]) -> int:
    arguments = _arguments(argv)
    console = Console(stderr=True)
    out: Path = arguments.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    runs = [run for name in arguments.benchmarks for run in registry.quick_runs(name)]
    left_out = [name for name in arguments.benchmarks if not registry.quick_runs(name)]
    deadline = time.monotonic() + 60 * arguments.minutes
    if arguments.against:
        return paired.run(runs, arguments.against, out, arguments.pairs, deadline)
    results = []
    for number, run in enumerate(runs, start=1):
        console.print(f"{number} of {len(runs)}: {running.command_of(run)}", highlight=False)
        done = _done(run, out) if arguments.resume else None
        result = done or running.carry_out(run, out, max(deadline - time.monotonic(), 1.0))
        outcome = "done" if result.exit_code == 0 else f"FAILED with code {result.exit_code}: see {out / result.log}"
        console.print(f"  {outcome} after {result.seconds:.0f} s", highlight=False, soft_wrap=True)
        results.append(result)
        for table in shapes.summaries(result.report or {}):
            show(_shown(table))
    if left_out:
        console.print(f"not run, as they list no quick run: {', '.join(left_out)}", highlight=False)
    return 1 if any(result.exit_code for result in results) else 0


def _shown(table: shapes.Table) -> Table:
    shown = Table(*(name.replace("_", " ") for name in table.columns), title=table.title or None)
    for row in table.rows:
        shown.add_row(*(_text(row.get(name)) for name in table.columns))
    return shown


def _text(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    return "" if value is None else str(value)


def _done(run: Run, out: Path) -> Result | None:
    """The result of the same run in a former report, if it succeeded."""
    outcome = out / f"{run.name}.outcome.json"
    if not outcome.exists():
        return None
    former = json.loads(outcome.read_text())
    if (former["command"], former["exit_code"]) != (running.command_of(run), 0):
        return None
    return running.result(run, out, former["seconds"], 0)


def _arguments(argv: Sequence[str]) -> argparse.Namespace:
    names = registry.found()
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.report", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("benchmarks", nargs="*", metavar="NAME", help=f"default: all of {', '.join(names)}")
    parser.add_argument("--out", type=Path, default=Path("build/bench"), help="folder of JSON and logs")
    parser.add_argument("--resume", action="store_true", help="runs that went well before, in OUT, are not run again")
    parser.add_argument("--minutes", type=float, default=20, help="for all runs together; what is left then fails")
    parser.add_argument("--against", metavar="REF", help="compare this tree with a revision, in pairs of runs")
    parser.add_argument("--pairs", type=int, default=6, help=f"with --against; {FEWEST_PAIRS} are needed for a verdict")
    arguments = parser.parse_args(argv)
    if arguments.against and arguments.resume:
        parser.error("--resume: a comparison cannot be resumed, as its runs must take turns")
    if arguments.pairs < 1:
        parser.error(f"--pairs {arguments.pairs}: expected a number above 0")
    if unknown := [name for name in arguments.benchmarks if name not in names]:
        parser.error(f"benchmark {unknown[0]}: choose from {', '.join(names)}")
    arguments.benchmarks = arguments.benchmarks or names
    return arguments


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends the benchmark that runs, as Ctrl-C does
    sys.exit(main(sys.argv[1:]))
