"""The results page, and the figures of the README, are those of the records."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.report import results_page
from benchmarks.report.records import Cell, read_all

ROOT = Path(__file__).resolve().parents[2]
README_FIGURES = [
    ("`kill -9` of a worker", "recovery-1-kill", ("local path", "4 GB"), ("Rhino", "Spark's own provider")),
    ("half of a worker's virtual nodes", "handover-1-half", ("4 GB", "assisted"), ("the batch that switches",)),
    ("half of a worker's virtual nodes", "handover-1-half", ("4 GB", "Spark's own"), ("the batch that switches",)),
    ("a batch without a fault", "overhead", ("NBQ8", "r = 1"), ("Rhino", "batch p50, Spark's own")),
]


def test_the_page_is_what_the_records_say() -> None:
    assert results_page.PAGE.read_text() == results_page.page(read_all()), f"run {results_page.COMMAND}"


@pytest.mark.parametrize(("what", "record", "row", "columns"), README_FIGURES)
def test_figures_of_the_readme_are_recorded(
    what: str, record: str, row: tuple[str, ...], columns: tuple[str, ...]
) -> None:
    (line,) = [line for line in (ROOT / "README.md").read_text().splitlines() if line.startswith(f"| {what}")]
    (table,) = read_all()[record].tables
    (found,) = [cells for cells in table.rows if tuple(cells[: len(row)]) == row]
    for column in columns:
        assert f"| {_in_seconds(found[table.columns.index(column)])} |" in line


def _in_seconds(cell: Cell) -> str:
    number, unit = str(cell).split()[:2]
    return f"{float(number) / (1000 if unit == 'ms' else 1):.2f} s"
