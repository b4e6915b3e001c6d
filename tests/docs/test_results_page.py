"""The results page is that of the records."""

from __future__ import annotations

from benchmarks.report import results_page
from benchmarks.report.records import read_all


def test_the_page_is_what_the_records_say() -> None:
    assert results_page.PAGE.read_text() == results_page.page(read_all()), f"run {results_page.COMMAND}"
