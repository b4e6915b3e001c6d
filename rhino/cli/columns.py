"""Tables as plain columns. No text is cut or wrapped, so other tools can find names and cut them out."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from rhino_core.text import legible

GAP = "  "
_FIGURE = re.compile(r"\d+(\.\d+)?%?( [A-Za-z]+)?\Z")  # 3, 1.5 MB, 40%; no dates, addresses or ids


class Cell(NamedTuple):
    """A text with a style of rich, such as "red". The style shows on terminals only."""

    text: str
    style: str = ""


Row = Sequence[str | Cell]


def say_to(out: Console, *parts: str | Cell) -> None:
    """Prints one line. Control characters are escaped, and nothing is markup."""
    out.print(_joined(map(_cell, parts)), soft_wrap=True, markup=False, highlight=False)


def show_columns(out: Console, head: Sequence[str], rows: Iterable[Row]) -> None:
    """Prints rows below a head line. Columns of figures only are aligned to the right.

    An empty text is printed as "-", so each line has the same number of fields.
    """
    table = [[_cell(cell or "-") for cell in row] for row in rows]
    widths = [max(map(cell_len, (name, *(row[at].text for row in table)))) for at, name in enumerate(head)]
    right = [bool(table) and all(_is_figure(row[at].text) for row in table) for at in range(len(head))]
    for row in ([Cell(name.upper(), "bold") for name in head], *table):
        say_to(out, *_aligned(row, widths, right))


def _cell(cell: str | Cell) -> Cell:
    text, style = cell if isinstance(cell, Cell) else (cell, "")
    return Cell(legible(text), style)


def _is_figure(text: str) -> bool:
    return text in ("?", "-") or _FIGURE.match(text) is not None


def _aligned(row: Sequence[Cell], widths: Sequence[int], right: Sequence[bool]) -> Iterable[Cell]:
    for at, cell in enumerate(row):
        padding = " " * (widths[at] - cell_len(cell.text))
        last = at == len(row) - 1
        if right[at]:
            yield Cell(padding)
        yield cell
        if not last:
            yield Cell(GAP if right[at] else padding + GAP)


def _joined(cells: Iterable[Cell]) -> Text:
    line = Text()
    for text, style in cells:
        line.append(text, style or None)
    return line
