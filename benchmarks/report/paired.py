"""Runs benchmarks on this tree and on another revision in turns, and compares their figures."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks import registry
from benchmarks.command import show
from benchmarks.registry import Run
from benchmarks.report import running
from benchmarks.report.running import Result
from benchmarks.report.verdicts import Comparison, Figures, Verdict, compare, figures_of
from rhino_core.errors import RhinoError
from workloads.machine import machine

CarryOut = Callable[[Run, Path, float, Path], Result]
SIDES = ("this", "other")


def run(runs: Sequence[Run], ref: str, out: Path, pairs: int, deadline: float) -> int:
    """Returns the exit code. `deadline`: of the monotonic clock, for all runs together."""
    console = Console(stderr=True)
    facts = machine()
    comparisons: dict[str, Comparison | str] = {}
    try:
        with worktree(ref) as other:
            console.print(f"building {ref}", highlight=False)
            build(other)
            for one in runs:
                console.print(f"{pairs} pairs: {running.command_of(one)}", highlight=False)
                comparisons[one.name] = compare_run(one, other, out, pairs, deadline)
                _write(out / "comparison.json", ref, runs, facts, comparisons)
    except RhinoError as error:
        console.print(f"[bold red]FAILED[/] {error}", highlight=False, soft_wrap=True)
        return 1
    return _tell(comparisons, console)


def compare_run(
    one: Run, other: Path, out: Path, pairs: int, deadline: float, carry_out: CarryOut = running.carry_out
) -> Comparison | str:
    """The comparison, or the reason why there is none. The first tree of one pair is the second of the next."""
    lower, higher = registry.judged(one.benchmark)
    if not lower + higher:
        return "the benchmark declares no figures to judge"
    trees = {"this": running.ROOT, "other": other}
    found: list[tuple[Figures, Figures]] = []
    for number in range(pairs):
        pair: dict[str, Figures] = {}
        for side in SIDES if number % 2 == 0 else reversed(SIDES):
            folder = out / f"pair-{number + 1}-{side}"
            folder.mkdir(parents=True, exist_ok=True)
            done = carry_out(one, folder, max(deadline - time.monotonic(), 1.0), trees[side])
            if done.exit_code or done.report is None:
                return f"{side} tree: exit code {done.exit_code} in pair {number + 1}, see {folder / done.log}"
            pair[side] = figures_of(done.report, lower + higher)
        found.append((pair["this"], pair["other"]))
    return compare(found, higher)


@contextmanager
def worktree(ref: str) -> Iterator[Path]:
    """The files of a revision in a folder of its own, removed at the end. Raises RhinoError for an unknown one."""
    with tempfile.TemporaryDirectory(prefix="rhino-bench-") as folder:
        path = Path(folder) / "tree"
        _command(["git", "worktree", "add", "--quiet", "--detach", str(path), ref], running.ROOT, f"revision {ref}")
        try:
            yield path
        finally:
            _command(["git", "worktree", "remove", "--force", str(path)], running.ROOT, f"removing {path}")


def build(tree: Path) -> None:
    """The jar of the tree. Both trees use the packages of this interpreter."""
    _command([sys.executable, "-m", "rhino.cli.main", "jar"], tree, "its jar", running.environment(tree))


def _command(command: Sequence[str], folder: Path, what: str, environment: Mapping[str, str] = os.environ) -> None:
    done = subprocess.run(command, cwd=folder, env=dict(environment), capture_output=True, text=True, check=False)
    if done.returncode:
        raise RhinoError(f"{what}: {(done.stderr or done.stdout).strip()[-1000:]}")


def rows_of(comparisons: Mapping[str, Comparison | str]) -> list[dict[str, Any]]:
    """A row for each figure, for a report and for people."""
    return [
        {
            "run": run,
            "figure": one.figure,
            "this": one.this_median,
            "other": one.other_median,
            "ratio": one.ratio,
            "lowest": min(one.ratios),
            "highest": max(one.ratios),
            "verdict": one.verdict.value,
        }
        for run, comparison in comparisons.items()
        if isinstance(comparison, Comparison)
        for one in comparison.compared
    ]


def skipped_of(comparisons: Mapping[str, Comparison | str]) -> list[str]:
    found = []
    for run, comparison in comparisons.items():
        if isinstance(comparison, str):
            found.append(f"{run}: {comparison}")
        else:
            found += [f"{run}: {figure}: {reason}" for figure, reason in comparison.skipped.items()]
    return found


def _write(
    path: Path,
    ref: str,
    runs: Sequence[Run],
    facts: Mapping[str, Any],
    comparisons: Mapping[str, Comparison | str],
) -> None:
    names = " ".join(dict.fromkeys(run.benchmark for run in runs))
    report = {
        "command": f"python -m benchmarks.report {names} --against {ref}",
        "machine": facts,
        "comparison": rows_of(comparisons),
        "skipped": skipped_of(comparisons),
    }
    path.write_text(json.dumps(report, indent=2) + "\n")


def _tell(comparisons: Mapping[str, Comparison | str], console: Console) -> int:
    rows = rows_of(comparisons)
    table = Table("figure", "this tree", "other", "ratio", "of the pairs", "verdict")
    for row in rows:
        values = (f"{row[name]:.4g}" for name in SIDES)
        spread = f"{row['lowest']:.3f} to {row['highest']:.3f}"
        table.add_row(f"{row['run']}: {row['figure']}", *values, f"{row['ratio']:.3f}", spread, row["verdict"])
    show(table)
    for line in skipped_of(comparisons):
        console.print(f"not compared: {line}", highlight=False, soft_wrap=True)
    failed = any(isinstance(comparison, str) for comparison in comparisons.values())
    return 1 if failed or not rows or any(row["verdict"] == Verdict.WORSE.value for row in rows) else 0
