"""`python -m benchmarks.report.record build/bench/handover-1.json --title "Half of a worker"`: keeps a run as a record.

It takes the JSON of a benchmark (`--json`, or `make bench`), writes benchmarks/results/<name>.json, and writes the
results page anew. Figures are copied, never typed.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import registry
from benchmarks.report import records, results_page, shapes
from benchmarks.report.records import NOT_RECORDED, FigureTable, Record
from rhino_core.errors import InvalidRequestError, RhinoError

PROGRAM = "python -m benchmarks.report.record"


def main(argv: Sequence[str]) -> int:
    arguments = _arguments(argv)
    try:
        made = record_of(json.loads(arguments.report.read_text()), arguments.title, arguments.load, arguments.note)
        name = arguments.name or f"{made.benchmark}-{made.date[:10]}"
        written = records.write(made, name)
    except (RhinoError, OSError, json.JSONDecodeError) as error:
        print(f"{arguments.report}: {error}", file=sys.stderr)
        return 1
    print(written)
    return results_page.main([])


def record_of(report: Mapping[str, Any], title: str, load: str, notes: Sequence[str]) -> Record:
    """Raises InvalidRequestError for a report of a failed run or of a wrong output, or without figures."""
    if broken := report.get("failed") or report.get("problems"):
        raise InvalidRequestError(f"the run failed, so it is no record: {broken}")
    tables = [_table(table) for table in shapes.summaries(report)]
    if not tables:
        raise InvalidRequestError("the report has no table of figures")
    command = _command(report["command"])
    machine = report["machine"]
    average = ", ".join(f"{value:.1f}" for value in machine["load_average_before"])
    return Record(
        title=title,
        benchmark=_benchmark(command),
        date=machine.get("date", NOT_RECORDED),
        machine=f"{machine['cpu']}, {machine['cores']} cores, {machine['memory_bytes'] / 1e9:.0f} GB",
        commit=machine.get("commit", NOT_RECORDED),
        load=f"{load}; load average before: {average}",
        commands=[command],
        conditions=[],
        tables=tables,
        notes=notes,
    )


def _command(said: str) -> str:
    """Without the interpreter's path, and without the file of the report."""
    without_file = re.sub(r" --json[ =]\S+", "", said)
    return without_file if without_file.startswith("python ") else f"python {without_file}"


def _benchmark(command: str) -> str:
    modules = {registry.module_of(name): name for name in registry.found()} | {"benchmarks.report": "report"}
    for module, name in modules.items():
        if re.search(rf" -m {re.escape(module)}(?: |$)", command):
            return name
    raise InvalidRequestError(f"{command!r}: the command of no benchmark; expected one of {', '.join(modules)}")


def _table(table: shapes.Table) -> FigureTable:
    rows = [[row.get(name) for name in table.columns] for row in table.rows]
    return FigureTable(table.title, [name.replace("_", " ") for name in table.columns], rows)


def _arguments(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog=PROGRAM, description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("report", type=Path, metavar="REPORT.json", help="that a benchmark wrote")
    parser.add_argument("--title", required=True, help="heading on the results page")
    parser.add_argument("--load", required=True, help='what else the machine did, such as "idle"')
    parser.add_argument("--note", action="append", default=[], help="a paragraph below the tables; may be repeated")
    parser.add_argument("--name", help="of the record's file; default: benchmark and date")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
