"""`python -m benchmarks.report.results_page`: writes the results page from the records. `--check` compares."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from benchmarks.report.records import NOT_RECORDED, Cell, FigureTable, Record, read_all
from rhino_core.errors import RhinoError

PAGE = Path(__file__).resolve().parents[2] / "docs/benchmarks/results.md"
COMMAND = "python -m benchmarks.report.results_page"
WIDEST = 10  # columns; a wider table is shown with its columns as lines
SECTIONS: Mapping[str, tuple[str, ...]] = {
    "A lost worker": ("recovery", "flink"),
    "Any other loss": ("losses",),
    "A planned move": ("handover",),
    "A change of a running query": ("modify", "restart", "branch", "shadow", "restructure"),
    "Plans of placement": ("planning", "correlation", "adaptation", "balance"),
    "The manager": ("manager",),
    "The archive": ("archive",),
    "How fast state travels": ("replication",),
    "What replication costs a query that nothing happens to": ("overhead",),
    "Why the data path is built this way": ("allocation",),
    "Workloads and quick runs": ("report", "nexmark", "airline", "keycount", "mapquery"),
}
_HEAD = f"""\
<!-- Written from benchmarks/results by `{COMMAND}`. Do not edit. -->

# Results

Each part is a record of runs, with its commands and conditions. [Method](method.md) says how a run becomes a record.
Compare what stands side by side in one record, not figures of different machines or days. Facts that nobody wrote down
at the time are listed as *{NOT_RECORDED}*.
"""


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog=COMMAND, description=__doc__)
    parser.add_argument("--check", action="store_true", help="exit code 1 if the page is not up to date")
    arguments = parser.parse_args(argv)
    try:
        text = page(read_all())
    except RhinoError as error:
        print(error, file=sys.stderr)
        return 1
    if not arguments.check:
        PAGE.write_text(text)
    elif not PAGE.exists() or PAGE.read_text() != text:
        print(f"{PAGE} is not what the records say: run {COMMAND}", file=sys.stderr)
        return 1
    return 0


def page(records: Mapping[str, Record]) -> str:
    """Raises RhinoError for a record without a section."""
    known = {benchmark for benchmarks in SECTIONS.values() for benchmark in benchmarks}
    for name, record in records.items():
        if record.benchmark not in known:
            raise RhinoError(f"{name}: no section of the page is about {record.benchmark!r}; see SECTIONS")
    lines = [_HEAD]
    for section, benchmarks in SECTIONS.items():
        chosen = [record for benchmark in benchmarks for record in records.values() if record.benchmark == benchmark]
        if chosen:
            lines.append(f"## {section}\n")
            lines += [line for record in chosen for line in _record(record)]
    return "\n".join(lines)


def _record(record: Record) -> Iterator[str]:
    yield f"### {record.title}\n"
    if record.commands:
        yield "\n".join(("```sh", *record.commands, "```")) + "\n"
    facts = {"date": record.date, "commit": record.commit, "machine": record.machine, "other load": record.load}
    known = [f"{name}: {value}" for name, value in facts.items() if value != NOT_RECORDED]
    unknown = [name for name, value in facts.items() if value == NOT_RECORDED]
    known += [f"{NOT_RECORDED}: {', '.join(unknown)}"] if unknown else []
    yield "; ".join(known) + ".\n"
    yield from (f"{paragraph}\n" for paragraph in record.conditions)
    for table in record.tables:
        yield from _table(table)
    yield from (f"{paragraph}\n" for paragraph in record.notes)


def _table(table: FigureTable) -> Iterator[str]:
    columns, rows = table.columns, table.rows
    if len(columns) > WIDEST:  # each row becomes a column, headed by its first cell
        columns, *rows = zip(columns, *rows, strict=True)
    if table.title:
        yield f"`{table.title}`\n"
    lines = [line(columns), line(["---"] * len(columns)), *(line(row) for row in rows)]
    yield "\n".join(lines) + "\n"


def line(cells: Sequence[Cell]) -> str:
    return ("| " + " | ".join(_text(cell) for cell in cells) + " |").replace("|  ", "| ")


def _text(cell: Cell) -> str:
    if cell is None:
        return ""
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    if isinstance(cell, float):
        return f"{cell:.0f}" if abs(cell) >= 1000 else f"{cell:.3g}"
    return str(cell).replace("|", "\\|")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
