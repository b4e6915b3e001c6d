"""The page: what every benchmark reports is found by its shape, and nothing outside the page is needed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from benchmarks import registry
from benchmarks.report import __main__ as command
from benchmarks.report import plots, shapes
from benchmarks.report.page import Result, page
from benchmarks.report.shapes import Table
from workloads.machine import machine

BATCHES = [{"batch_id": i, "started_ms": 1000 + 500 * i, "duration_ms": 400 + i} for i in range(10)]
REPORT: dict[str, Any] = {
    "command": "python -m benchmarks.x",
    "machine": {"cores": 2},
    "trials": [
        {
            "job": "nbq8",
            "events": 60_000,
            "missing": 0,
            "latency": {"p50_ms": 3.25},
            "faults": [{"kind": "kill", "what": "<worker>", "started_ms": 2000, "ended_ms": 3500}],
            "batches": BATCHES,
        }
    ],
    "throughput": {"median": [{"subject": "rhino", "hops": 1, "mb_per_s": 250.0}, {"subject": "cp", "mb_per_s": 900}]},
    "recovery": [
        {"subject": who, "state_bytes": size, "recovery_s": size * slope}
        for who, slope in (("rhino", 1), ("stock", 3))
        for size in (1, 2, 4)
    ],
    "rows": [{"setting": "r1", "load": "nbq8", "provider": who, "p50_ms": 700.0} for who in ("Spark's own", "rhino")],
}


def test_tables_are_rows_of_plain_values() -> None:
    found = {table.title: table for table in shapes.tables(REPORT)}
    assert list(found) == ["trials", "throughput: median", "recovery", "rows"]
    assert found["trials"].rows == [{"job": "nbq8", "events": 60_000, "missing": 0, "latency p50_ms": 3.25}]


def test_timelines_are_batches_with_what_was_done_meanwhile() -> None:
    (line,) = shapes.timelines(REPORT)
    assert line.title == "nbq8"
    assert (line.ends_s[0], line.durations_s[9]) == (0.4, 0.409)
    assert line.marks == [shapes.Mark("kill", 1.0, 2.5)]


def test_plots_only_of_tables_that_have_what_they_show() -> None:
    drawn = {table.title: plots.of_table(table) for table in shapes.tables(REPORT)}
    assert drawn["trials"] is None
    assert "MB/s" in str(drawn["throughput: median"])
    assert "stock" in str(drawn["recovery"])
    assert "r1 nbq8 rhino" in str(drawn["rows"])
    assert plots.of_table(Table("", [{"subject": "x"}])) is None


def test_the_page_needs_nothing_beside_it_and_hides_no_failure() -> None:
    good = Result("x-1", "python -m benchmarks.x", 3.0, 0, REPORT | {"problems": ["2 < 3 rows"]}, "x-1.json", "x-1.log")
    bad = Result("y-1", "python -m benchmarks.y", 1.0, 1, None, "y-1.json", "y-1.log")
    text = page([good, bad], machine(), ["z"])
    assert text.count("<svg") == 4
    assert "2 &lt; 3 rows" in text
    assert "FAILED (1)" in text
    assert "wrote no report" in text
    assert "no quick run: z" in text
    assert set(re.findall(r"(?:href|src)='([^']*)'", text)) == {"x-1.json", "x-1.log", "y-1.json", "y-1.log"}
    assert not re.search(r"<(script|link|img)\b", text)


def test_every_benchmark_is_found_and_lists_a_quick_run() -> None:
    with_spark = {"airline", "handover", "keycount", "mapquery", "nexmark", "overhead", "recovery"}
    assert with_spark | {"placement", "replication"} <= set(registry.found())
    assert all(registry.quick_runs(name) for name in registry.found())


def test_a_failed_benchmark_fails_the_whole_and_is_on_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = (registry.Run("mapquery", 1, ("--rate", "0")),)
    monkeypatch.setattr(registry, "quick_runs", lambda name: runs)
    assert command.main(["mapquery", "--out", str(tmp_path)]) == 1
    assert "FAILED (2)" in (tmp_path / "report.html").read_text()
    assert "rate = 0" in (tmp_path / "mapquery-1.log").read_text()


def test_resume_runs_only_what_has_not_gone_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = (registry.Run("mapquery", 1, ("--rate", "0")), registry.Run("mapquery", 2, ("--help",)))
    monkeypatch.setattr(registry, "quick_runs", lambda name: runs)
    assert command.main(["mapquery", "--out", str(tmp_path)]) == 1
    for log in ("mapquery-1.log", "mapquery-2.log"):
        (tmp_path / log).write_text("not run again")
    assert command.main(["mapquery", "--out", str(tmp_path), "--resume"]) == 1
    assert "rate = 0" in (tmp_path / "mapquery-1.log").read_text()
    assert (tmp_path / "mapquery-2.log").read_text() == "not run again"
