"""A run becomes a record, and records become a page."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.report import record, records, results_page
from benchmarks.report.records import NOT_RECORDED, FigureTable, Record
from rhino_core.errors import InvalidRequestError, RhinoError

MACHINE = {
    "date": "2026-11-24T05:00:00+00:00",
    "commit": "0123456789ab",
    "cpu": "EPYC",
    "cores": 2,
    "memory_bytes": 24e9,
    "load_average_before": (0.5, 1, 2),
}
REPORT: dict[str, Any] = {
    "command": "-m benchmarks.recovery --sizes 1 --json /tmp/of.json --rounds 2",
    "machine": MACHINE,
    "results": [{"subject": "rhino", "next_batch": value} for value in (400.0, 500.0)],
    "median": [{"subject": "rhino", "next_batch": 450.0}, {"subject": "stock", "next_batch": 2100.4}],
}
OLD = Record("Old", "recovery", NOT_RECORDED, "two cores", NOT_RECORDED, NOT_RECORDED, [], [], [], [])


def test_a_record_has_the_figures_and_the_conditions_of_the_run() -> None:
    made = record.record_of(REPORT, "Kill", "idle", ["A note."])
    assert made.benchmark == "recovery"
    assert made.commands == ["python -m benchmarks.recovery --sizes 1 --rounds 2"]
    assert (made.date, made.commit, made.machine) == (MACHINE["date"], MACHINE["commit"], "EPYC, 2 cores, 24 GB")
    assert made.load == "idle; load average before: 0.5, 1.0, 2.0"
    assert made.tables == [FigureTable("median", ["subject", "next batch"], [["rhino", 450.0], ["stock", 2100.4]])]


@pytest.mark.parametrize(
    "wrong",
    [
        {"failed": {"reason": "no room"}},
        {"problems": ["nbq8: 1 rows missing"]},
        {"median": [], "results": []},
        {"command": "python -m something.else"},
    ],
)
def test_what_is_no_measurement_becomes_no_record(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequestError):
        record.record_of(REPORT | wrong, "Kill", "idle", [])


def test_a_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    made = record.record_of(REPORT, "Kill", "idle", ["A note."])
    assert records.read(records.write(made, "kill", tmp_path)) == made


def test_a_file_with_other_fields_or_uneven_rows_is_refused(tmp_path: Path) -> None:
    stored = dataclasses.asdict(OLD)
    path = tmp_path / "a.json"
    path.write_text(json.dumps(stored | {"operator": "me"}))
    with pytest.raises(InvalidRequestError, match="operator"):
        records.read(path)
    path.write_text(json.dumps(stored | {"tables": [{"title": "", "columns": ["a", "b"], "rows": [["x"]]}]}))
    with pytest.raises(InvalidRequestError, match="2 cells"):
        records.read(path)


def test_the_newest_records_come_first_and_those_without_a_date_last(tmp_path: Path) -> None:
    for name, date in (("a", NOT_RECORDED), ("b", "2026-11-01"), ("c", "2026-12-01")):
        records.write(dataclasses.replace(OLD, date=date), name, tmp_path)
    assert list(records.read_all(tmp_path)) == ["c", "b", "a"]


def test_the_page_names_what_is_not_recorded() -> None:
    text = results_page.page({"old": OLD})
    assert "## A lost worker" in text
    assert "machine: two cores; not recorded: date, commit, other load." in text
    assert "## A planned move" not in text


def test_a_wide_table_is_turned() -> None:
    columns = ["subject", *(f"figure {n}" for n in range(results_page.WIDEST))]
    wide = FigureTable("median", columns, [["rhino", *range(results_page.WIDEST)], ["stock", *[None] * 10]])
    text = results_page.page({"wide": dataclasses.replace(OLD, tables=[wide])})
    assert "| subject | rhino | stock |" in text
    assert "| figure 3 | 3 | |" in text


def test_a_record_of_no_section_is_refused() -> None:
    with pytest.raises(RhinoError, match="'juggling'"):
        results_page.page({"x": dataclasses.replace(OLD, benchmark="juggling")})


def test_check_fails_when_the_page_is_old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results_page, "PAGE", tmp_path / "results.md")
    assert results_page.main(["--check"]) == 1
    assert results_page.main([]) == 0
    assert results_page.main(["--check"]) == 0
    (tmp_path / "results.md").write_text("typed by hand")
    assert results_page.main(["--check"]) == 1
