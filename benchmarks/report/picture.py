"""`python -m benchmarks.report.picture`: draws the picture of the first page from the records."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import escape

from benchmarks.report.records import Record, read_all
from rhino_core.errors import UnknownError

PICTURE = Path(__file__).resolve().parents[2] / "docs/kill-and-move.svg"
COMMAND = "python -m benchmarks.report.picture"
WIDTH, LEFT, RIGHT, BAR, GAP = 720, 190, 90, 26, 8  # pixels


@dataclass(frozen=True, slots=True)
class Place:
    """One cell: of the record's only table, the row that begins with `row`."""

    record: str
    row: tuple[str, ...]
    column: str


@dataclass(frozen=True, slots=True)
class Scene:
    title: str
    rhino: Place
    stock: Place


SCENES = (
    Scene(
        "A worker is killed: until the next batch is done",
        Place("recovery-1-kill", ("local path", "4 GB"), "Rhino"),
        Place("recovery-1-kill", ("local path", "4 GB"), "Spark's own provider"),
    ),
    Scene(
        "Virtual nodes move to another worker: the batch that switches",
        Place("handover-1-half", ("4 GB", "assisted"), "the batch that switches"),
        Place("handover-1-half", ("4 GB", "Spark's own"), "the batch that switches"),
    ),
)
NAMES = {"rhino": "Rhino", "stock": "Spark's own provider"}


def seconds(records: Mapping[str, Record], place: Place) -> float:
    """Raises UnknownError if the record, the row or the column is not there."""
    try:
        (table,) = records[place.record].tables
        (row,) = [row for row in table.rows if tuple(row[: len(place.row)]) == place.row]
        number, unit = str(row[table.columns.index(place.column)]).split()[:2]
    except (KeyError, ValueError) as error:
        raise UnknownError(f"{place.record}: no single figure at {place.row}, {place.column!r}: {error}") from error
    return float(number) / {"ms": 1000, "s": 1}[unit]


def picture(records: Mapping[str, Record]) -> str:
    """Returns an SVG. All bars have one scale. Raises UnknownError as `seconds`."""
    figures = [
        (scene.title, {"rhino": seconds(records, scene.rhino), "stock": seconds(records, scene.stock)})
        for scene in SCENES
    ]
    scale = (WIDTH - LEFT - RIGHT) / max(max(values.values()) for _, values in figures)
    shapes: list[str] = []
    y = GAP
    for title, values in figures:
        shapes.append(f'<text class="title" x="0" y="{y + 18}">{escape(title)}</text>')
        y += BAR + GAP
        for who, value in values.items():
            shapes += _bar(who, value, y, scale)
            y += BAR + GAP
        y += 2 * GAP
    return "\n".join([_head(y - GAP), *shapes, "</svg>", ""])


def _bar(who: str, value: float, y: int, scale: float) -> Iterator[str]:
    middle = y + BAR / 2
    yield f'<text x="{LEFT - 12}" y="{middle:g}" text-anchor="end" dy=".35em">{escape(NAMES[who])}</text>'
    yield f'<rect class="{who}" x="{LEFT}" y="{y}" width="{value * scale:.1f}" height="{BAR}" rx="3"/>'
    yield f'<text class="figure" x="{LEFT + value * scale + 8:.1f}" y="{middle:g}" dy=".35em">{value:.2f} s</text>'


def _head(height: int) -> str:
    return f"""\
<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}" role="img">
<!-- Drawn from benchmarks/results by `{COMMAND}`. Do not edit. -->
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
