"""`python -m benchmarks.report.figures` (`make figures`): measures the figures of the README, and writes them there.

Recovery, handover, overhead and modify run on one clean commit, Rhino beside Spark's own provider if there is one:
first on an idle machine, then beside two burning processes. It takes about an hour. The record is
benchmarks/results/figures.json. `--quick` is a trial of some minutes: it shows the table, and writes nothing.
"""

from __future__ import annotations

import argparse
import contextlib
import re
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks.burning import PROCESSES, burning
from benchmarks.command import main
from benchmarks.registry import Run
from benchmarks.report import picture, records, results_page, running, shapes
from benchmarks.report.records import Cell, FigureTable, Record
from rhino_core.errors import RhinoError
from workloads.machine import machine

NAME = "figures"
README = running.ROOT / "README.md"
BUSY = f"beside {PROCESSES} burning processes"
COLUMNS = ("", "Rhino", "Spark's own provider", f"Rhino, {BUSY}", f"Spark's own, {BUSY}")
TIMEOUT_S = 4 * 3600.0


@dataclass(frozen=True, slots=True)
class Figure:
    """`table` and `column`: its place in the report. `rows`: the value of `key` in Rhino's row, and in Spark's own."""

    title: str
    benchmark: str
    arguments: str
    quick: str
    table: str
    column: str
    key: str
    rows: tuple[str, ...]


FIGURES = (
    Figure(
        "`kill -9` of a worker with 0.5 GB of state, until the next batch is done",
        "recovery",
        "--sizes 0.5 --subjects rhino,stock --rounds 3",
        "--sizes 0.05 --subjects rhino,stock --rounds 1",
        "median",
        "next_batch",
        "subject",
        ("rhino", "stock"),
    ),
    Figure(
        "half of a worker's virtual nodes moved, 0.5 GB: the batch that switches",
        "handover",
        "--sizes 0.5 --subjects assisted,stock --rounds 3",
        "--sizes 0.05 --subjects assisted,stock --rounds 1",
        "median",
        "switch_median",
        "subject",
        ("assisted", "stock"),
    ),
    Figure(
        "a batch without a fault or a move (NEXMark NBQ8, one secondary copy)",
        "overhead",
        "--settings r1 --loads nbq8 --rounds 3",
        "--settings r1 --loads nbq8 --rounds 1 --batches 3",
        "rows",
        "p50_ms",
        "provider",
        ("rhino", "stock"),
    ),
    Figure(
        "another filter in a running query (NEXMark NBQ5): until a batch has it",
        "modify",
        "--loads nbq5 --rounds 1 --changes 10",
        "--loads nbq5 --rounds 1 --changes 1",
        "summary",
        "done_ms",
        "load",
        ("nbq5",),
    ),
)


def run_all(*, quick: bool, console: Console) -> Record:
    """Raises RhinoError if a benchmark fails, or if the tree is not one clean commit (unless `quick`)."""
    facts = machine()
    if not quick and not re.fullmatch(r"[0-9a-f]{12}", facts["commit"]):
        raise RhinoError(f"figures are measured on one clean commit, and this tree is {facts['commit']}: commit first")
    found: dict[str, list[float]] = {figure.title: [] for figure in FIGURES}
    with tempfile.TemporaryDirectory(prefix="rhino-figures-") as temporary:
        for busy in (False, True):
            for figure in FIGURES:
                run = Run(figure.benchmark, 1 + busy, tuple((figure.quick if quick else figure.arguments).split()))
                console.print(f"{BUSY if busy else 'idle'}: {running.command_of(run)}", highlight=False)
                with burning() if busy else contextlib.nullcontext():
                    done = running.carry_out(run, Path(temporary), TIMEOUT_S)
                if done.exit_code or done.report is None:
                    log = (Path(temporary) / done.log).read_text()[-2000:]
                    raise RhinoError(f"{done.command}: exit code {done.exit_code}\n{log}")
                found[figure.title] += picked(figure, done.report)
    return Record(
        title="Figures of the README",
        benchmark="report",
        date=facts["date"],
        machine=f"{facts['cpu']}, {facts['cores']} cores, {facts['memory_bytes'] / 1e9:.0f} GB",
        commit=facts["commit"],
        load=f"nothing else, and {BUSY}",
        commands=["python -m benchmarks.report.figures" + (" --quick" if quick else "")],
        conditions=["Seconds, medians."],
        tables=[FigureTable("", COLUMNS, [_row(title, values) for title, values in found.items()])],
        notes=[],
    )


def picked(figure: Figure, report: Mapping[str, Any]) -> list[float]:
    """Seconds: of Rhino, and of Spark's own provider if the benchmark has it. Raises RhinoError if one is missing."""
    rows = [row for table in shapes.tables(report) if table.title == figure.table for row in table.rows]
    by = {row.get(figure.key): row.get(figure.column) for row in rows}
    values = [by.get(name) for name in figure.rows]
    if not all(isinstance(value, int | float) for value in values):
        raise RhinoError(f"{figure.benchmark}: no {figure.column} of {', '.join(figure.rows)} in its report: {by}")
    return [float(value) / 1000 for value in values if value is not None]


def _row(title: str, values: Sequence[float]) -> list[Cell]:
    """`values`: one or two idle ones, then as many beside the burning processes."""
    pairs = [values[: len(values) // 2], values[len(values) // 2 :]]
    cells = [f"{pair[at]:.2f} s" if at < len(pair) else None for pair in pairs for at in (0, 1)]
    return [title, *cells]


def readme_table(record: Record) -> str:
    """The lines of the README, with date, commit and machine."""
    (table,) = record.tables
    lines = [results_page.line(table.columns), results_page.line(["---"] * len(table.columns))]
    lines += [results_page.line(row) for row in table.rows]
    facts = f"Measured {record.date[:10]} by `make figures` on commit {record.commit} ({record.machine})."
    return "\n".join([facts, "", *lines])


def with_figures(text: str, record: Record) -> str:
    """The README with its section "Figures" from the record."""
    section = re.search(r"(?<=^## Figures\n\n).*?(?=^## )", text, re.MULTILINE | re.DOTALL)
    if section is None:
        raise RhinoError(f"{README} has no section Figures")
    more = "[docs/benchmarks/results.md](docs/benchmarks/results.md) has all figures, with their commands."
    return f"{text[: section.start()]}{readme_table(record)}\n\n{more}\n\n{text[section.end() :]}"


def _run() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.report.figures",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--quick", action="store_true", help="a trial of some minutes, which writes nothing")
    arguments = parser.parse_args()
    record = run_all(quick=arguments.quick, console=Console(stderr=True))
    print(readme_table(record))
    if not arguments.quick:
        records.write(record, NAME)
        README.write_text(with_figures(README.read_text(), record))
        results_page.main([])
        picture.main()


if __name__ == "__main__":
    sys.exit(main(_run))
