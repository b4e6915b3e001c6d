"""The picture of the first page draws what the record says."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from benchmarks.report import figures, picture
from benchmarks.report.records import RESULTS, read_all
from rhino_core.errors import UnknownError

SVG = "{http://www.w3.org/2000/svg}"
PAGE = Path(__file__).parents[2] / "docs/index.md"


def test_the_file_is_what_the_record_says() -> None:
    assert picture.PICTURE.read_text() == picture.picture(read_all()), f"run {picture.COMMAND}"


def test_the_numbers_and_the_lengths_are_the_recorded_ones() -> None:
    drawn = ElementTree.fromstring(picture.PICTURE.read_text())
    numbers = [text.text for text in drawn.iterfind(f"{SVG}text[@class='figure']")]
    widths = [float(bar.attrib["width"]) for bar in drawn.iter(f"{SVG}rect")]
    (table,) = json.loads((RESULTS / "figures.json").read_text())["tables"]
    recorded = [cell for row in table["rows"][:2] for cell in row[1:3]]  # a kill, a move
    assert numbers == recorded
    values = [float(cell.split()[0]) for cell in recorded]
    assert widths == [pytest.approx(max(widths) * value / max(values), abs=0.1) for value in values]


def test_the_page_names_size_and_day_of_the_record() -> None:
    text = " ".join(PAGE.read_text().split())
    assert read_all()[picture.RECORD].date[:10] in text
    assert all("0.5 GB" in figure.title for figure in figures.FIGURES[:2])
    assert "0.5 GB of state" in text


def test_a_figure_that_nobody_recorded_is_an_error() -> None:
    with pytest.raises(UnknownError, match="no figure of 'a flood', 'Rhino': run `make figures`"):
        picture.seconds(read_all(), "a flood", "Rhino")
    record = read_all()[picture.RECORD]
    (table,) = record.tables
    other = dataclasses.replace(table, rows=[["a flood", "3 ms", "4 ms", "", ""]])
    with pytest.raises(UnknownError, match="is in ms, not in s"):
        picture.seconds({picture.RECORD: dataclasses.replace(record, tables=[other])}, "a flood", "Rhino")
