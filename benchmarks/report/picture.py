"""`python -m benchmarks.report.picture`: draws the picture of the first page from the record of `make figures`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from xml.sax.saxutils import escape

from benchmarks.report.records import Record, read_all
from rhino_core.errors import UnknownError

PICTURE = Path(__file__).resolve().parents[2] / "docs/kill-and-move.svg"
COMMAND = "python -m benchmarks.report.picture"
RECORD = "figures"
SCENES = {  # title, and how the row of the record begins
    "A worker is killed: until the next batch is done": "`kill -9` of a worker",
    "Virtual nodes move to another worker: the batch that switches": "half of a worker's virtual nodes",
}
COLUMNS = {"Rhino": "rhino", "Spark's own provider": "stock"}  # of the record, with their classes in the SVG
WIDTH, LEFT, RIGHT, BAR, GAP = 720, 190, 90, 26, 8  # pixels


def seconds(records: Mapping[str, Record], row: str, column: str) -> float:
    """Raises UnknownError if the record does not have exactly one such figure."""
    try:
        (table,) = records[RECORD].tables
        (found,) = [cells for cells in table.rows if str(cells[0]).startswith(row)]
        number, unit = str(found[table.columns.index(column)]).split()
    except (KeyError, ValueError) as error:
        raise UnknownError(f"the record {RECORD}: no figure of {row!r}, {column!r}: run `make figures`") from error
    if unit != "s":
        raise UnknownError(f"the record {RECORD}: {row!r}, {column!r} is in {unit}, not in s")
    return float(number)


def picture(records: Mapping[str, Record]) -> str:
    """Returns an SVG. All bars have one scale. Raises UnknownError as `seconds`."""
    scenes = {title: {name: seconds(records, row, name) for name in COLUMNS} for title, row in SCENES.items()}
    scale = (WIDTH - LEFT - RIGHT) / max(max(values.values()) for values in scenes.values())
    shapes: list[str] = []
    y = GAP
    for title, values in scenes.items():
        shapes.append(f'<text class="title" x="0" y="{y + 18}">{escape(title)}</text>')
        for name, value in values.items():
            y += BAR + GAP
            shapes += _bar(name, value, y, scale)
        y += BAR + 3 * GAP
    return "\n".join([_head(y - GAP), *shapes, "</svg>", ""])


def _bar(name: str, value: float, y: int, scale: float) -> Iterator[str]:
    middle = y + BAR / 2
    yield f'<text x="{LEFT - 12}" y="{middle:g}" text-anchor="end" dy=".35em">{escape(name)}</text>'
    yield f'<rect class="{COLUMNS[name]}" x="{LEFT}" y="{y}" width="{value * scale:.1f}" height="{BAR}" rx="3"/>'
    yield f'<text class="figure" x="{LEFT + value * scale + 8:.1f}" y="{middle:g}" dy=".35em">{value:.2f} s</text>'


def _head(height: int) -> str:
    return f"""\
<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}" role="img">
<!-- Drawn from benchmarks/results/{RECORD}.json by `{COMMAND}`. Do not edit. -->
<title>Rhino beside Spark's own provider: a killed worker, and a move</title>
<style>
text {{ font: 15px sans-serif; fill: #333 }}
.title, .figure {{ font-weight: bold }}
.rhino {{ fill: #3f51b5 }}
.stock {{ fill: #9e9e9e }}
</style>"""


def main() -> None:
    PICTURE.write_text(picture(read_all()))


if __name__ == "__main__":
    main()
