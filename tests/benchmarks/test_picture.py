"""The picture of the first page draws what the records say."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from benchmarks.report import picture
from benchmarks.report.records import read_all
from rhino_core.errors import UnknownError

SVG = "{http://www.w3.org/2000/svg}"
ROOT = Path(__file__).parents[2]


def test_the_file_is_what_the_records_say() -> None:
    assert picture.PICTURE.read_text() == picture.picture(read_all()), f"run {picture.COMMAND}"


def test_the_numbers_and_the_lengths_are_the_recorded_ones() -> None:
    drawn = ElementTree.fromstring(picture.PICTURE.read_text())
    numbers = [float((text.text or "").removesuffix(" s")) for text in drawn.iterfind(f"{SVG}text[@class='figure']")]
    widths = [float(bar.attrib["width"]) for bar in drawn.iter(f"{SVG}rect")]
    recorded = []
    for scene in picture.SCENES:
        for place in (scene.rhino, scene.stock):
            text = (ROOT / f"benchmarks/results/{place.record}.json").read_text()
            value = picture.seconds(read_all(), place)
            assert re.search(rf'"({value:.2f} s\b|{value * 1000:.0f} ms")', text), place
            recorded.append(value)
    assert numbers == [pytest.approx(value, abs=0.005) for value in recorded]
    assert widths == [pytest.approx(max(widths) * value / max(recorded), abs=0.1) for value in recorded]


def test_a_figure_that_nobody_recorded_is_an_error() -> None:
    absent = picture.Place("recovery-1-kill", ("local path", "9 GB"), "Rhino")
    with pytest.raises(UnknownError, match="recovery-1-kill: no single figure at .*9 GB"):
        picture.seconds(read_all(), absent)
