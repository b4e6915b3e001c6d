"""The results of a command's jobs: a JSON report that is written after each job, a table, and the problems."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from workloads.machine import machine
from workloads.trial.whole import Trial

REPORT_WIDTH = 160  # when the output is not a terminal


class Results:
    """Collects results. With `path` None it writes no report."""

    def __init__(self, command: str, path: Path | None) -> None:
        self.problems: list[str] = []
        self._path = path
        self._table = Table("job", "events", "rows", "missing", "extra", "batch p50 ms", "state rows", "faults, more")
        self._report: dict[str, Any] = {
            "command": command,
            "machine": machine(),
            "trials": [],
            "problems": self.problems,
        }

    def add(self, done: Trial, more: Mapping[str, Any]) -> None:
        """Adds a finished trial. `more`: further measurements, by group."""
        self._report["trials"].append(done.as_json() | dict(more))
        self.problems += _problems(done)
        self._table.add_row(*_cells(done, more))
        self._write()

    def failed(self, problem: str) -> None:
        """Adds a problem, without the query's whole plan, which Spark appends to an error."""
        self.problems.append(problem.partition("=== Streaming Query ===")[0].strip())
        self._write()

    def show(self, console: Console) -> None:
        """Prints the table on standard output and the problems on `console`."""
        standard = Console()
        if not standard.is_terminal:
            standard.width = REPORT_WIDTH
        standard.print(self._table)
        for problem in self.problems:
            console.print(f"[bold red]FAILED[/] {problem}", highlight=False, soft_wrap=True)

    def _write(self) -> None:
        if self._path:
            self._path.write_text(json.dumps(self._report, indent=2) + "\n")


def _problems(done: Trial) -> list[str]:
    found = []
    if not done.verdict.equal:
        found.append(f"{done.job}: {done.verdict.missing} rows missing, {done.verdict.extra} extra")
    if not done.verdict.rows:
        found.append(f"{done.job}: the output has no rows")
    if done.timeline.dropped:
        found.append(f"{done.job}: {done.timeline.dropped} rows were dropped as too late")
    return found


def _cells(done: Trial, more: Mapping[str, Any]) -> list[str]:
    facts = done.as_json()
    p50 = f"{facts['batch_ms_p50']:.0f}" if facts["batch_ms_p50"] is not None else ""
    counts = [f"{facts[name]:,}" for name in ("events", "rows", "missing", "extra")]
    notes = [f"{fault.kind} {(fault.ended_ms - fault.started_ms) / 1000:.1f} s" for fault in done.timeline.faults]
    notes += [f"{name} {value:.0f}" for group in more.values() for name, value in group.items()]
    return [done.job, *counts, p50, f"{facts['state_rows_max']:,}", ", ".join(notes)]
