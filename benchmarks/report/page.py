"""One HTML page that needs nothing beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from benchmarks.report import plots, shapes
from benchmarks.report.shapes import Table

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; color: #222 }
table { border-collapse: collapse; margin: .5rem 0 1.5rem; font-size: 13px } caption { text-align: left; color: #555 }
th, td { border-bottom: 1px solid #ddd; padding: .2rem .6rem; text-align: right }
th:first-child, td:first-child { text-align: left }
code { background: #f3f3f3; padding: .1rem .3rem } .failed { color: #b00020 } svg { max-width: 100%; height: auto }
.wide { overflow-x: auto }
"""


@dataclass(frozen=True, slots=True)
class Result:
    """One run: its command, how long it took, its exit code, and its report, if it wrote one."""

    name: str
    command: str
    seconds: float
    exit_code: int
    report: Mapping[str, Any] | None
    raw: str  # name of the file with the JSON, beside the page
    log: str


def page(results: Sequence[Result], machine: Mapping[str, Any], left_out: Sequence[str]) -> str:
    """The whole page."""
    parts = ["<h1>Rhino: benchmarks</h1>", _machine(machine), _overview(results)]
    parts += [f"<p>Not run, as they list no quick run: {escape(', '.join(left_out))}.</p>"] if left_out else []
    parts += [_section(result) for result in results]
    head = f"<meta charset='utf-8'><title>Rhino: benchmarks</title><style>{_STYLE}</style>"
    return f"<!doctype html><html lang='en'><head>{head}</head><body>{''.join(parts)}</body></html>\n"


def _machine(machine: Mapping[str, Any]) -> str:
    plain = {name: value for name, value in machine.items() if not isinstance(value, Mapping | list | tuple)}
    plain["load average before"] = ", ".join(f"{load:.2f}" for load in machine["load_average_before"])
    rows = [{"machine": name.replace("_", " "), "": value} for name, value in (plain | machine["libraries"]).items()]
    note = (
        "<p>Quick runs, once each: compare what stands side by side in one run, not figures of different machines.</p>"
    )
    return note + _table(Table("", rows))


def _overview(results: Sequence[Result]) -> str:
    rows = [
        {
            "run": r.name,
            "outcome": "done" if r.exit_code == 0 else f"FAILED ({r.exit_code})",
            "seconds": round(r.seconds),
        }
        for r in results
    ]
    return _table(Table("", rows))


def _section(result: Result) -> str:
    links = f"<a href='{escape(result.raw)}'>raw JSON</a>, <a href='{escape(result.log)}'>log</a>"
    parts = [f"<h2>{escape(result.name)}</h2><p><code>{escape(result.command)}</code> ({links})</p>"]
    if result.report is None:
        return "".join([*parts, "<p class='failed'>It wrote no report.</p>"])
    parts += [f"<p class='failed'>{escape(str(problem))}</p>" for problem in result.report.get("problems", [])]
    for table in shapes.tables(result.report):
        parts += [_table(table), plots.of_table(table) or ""]
    parts += [plots.timeline(line) for line in shapes.timelines(result.report)]
    return "".join(parts)


def _table(table: Table) -> str:
    head = "".join(f"<th>{escape(name.replace('_', ' '))}</th>" for name in table.columns)
    body = "".join(
        f"<tr>{''.join(f'<td>{escape(_text(row.get(name)))}</td>' for name in table.columns)}</tr>"
        for row in table.rows
    )
    caption = f"<caption>{escape(table.title)}</caption>" if table.title else ""
    return f"<div class='wide'><table>{caption}<tr>{head}</tr>{body}</table></div>"


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    return f"{value:,}" if isinstance(value, int) else str(value)
