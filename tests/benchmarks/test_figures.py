"""The figures of the README: picked from reports, written with their facts, and only from one clean commit."""

from __future__ import annotations

import re
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from benchmarks.registry import Run
from benchmarks.report import figures, records, running
from benchmarks.report.running import Result
from rhino_core.errors import RhinoError
from workloads.machine import machine

COMMIT = "0123456789ab"
REPORTS: dict[str, dict[str, Any]] = {
    "recovery": {"median": [{"subject": "rhino", "next_batch": 520.0}, {"subject": "stock", "next_batch": 3120.0}]},
    "handover": {
        "median": [{"subject": s, "switch_median": 1000.0 * n} for n, s in enumerate(("assisted", "stock"), 1)]
    },
    "overhead": {"rows": [{"provider": "stock", "p50_ms": 1200.0}, {"provider": "rhino", "p50_ms": 1190.0}]},
    "modify": {"summary": [{"load": "nbq5", "done_ms": 900.0}]},
}


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The benchmarks that run, without running them."""
    ran: list[str] = []

    def carry_out(run: Run, out: Path, timeout_s: float) -> Result:
        ran.append(run.benchmark)
        return Result("", 1.0, 0, REPORTS[run.benchmark], "log")

    monkeypatch.setattr(running, "carry_out", carry_out)
    monkeypatch.setattr(figures, "machine", lambda: machine() | {"commit": COMMIT})
    return ran


def test_each_is_measured_idle_and_busy_and_the_readme_gets_its_facts(measured: list[str]) -> None:
    record = figures.run_all(quick=False, console=Console(quiet=True))
    assert measured == 2 * ["recovery", "handover", "overhead", "modify"]
    text = figures.with_figures("# R\n\n## Figures\n\nold\n\n## More\n", record)
    lines = text.splitlines()
    assert f"on commit {COMMIT}" in text
    assert record.date[:10] in text
    assert any(
        line.startswith("| `kill -9`") and line.endswith("| 0.52 s | 3.12 s | 0.52 s | 3.12 s |") for line in lines
    )
    assert any(line.endswith("a batch has it | 0.90 s | | 0.90 s | |") for line in lines)
    assert "old" not in text
    assert text.endswith("\n\n## More\n")


def test_a_tree_with_changes_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figures, "machine", lambda: machine() | {"commit": f"{COMMIT}-dirty"})
    with pytest.raises(RhinoError, match="one clean commit, and this tree is 0123456789ab-dirty: commit first"):
        figures.run_all(quick=False, console=Console(quiet=True))


def test_a_report_without_the_figure_is_named() -> None:
    with pytest.raises(RhinoError, match="recovery: no next_batch of rhino, stock in its report"):
        figures.picked(figures.FIGURES[0], {"median": [{"subject": "rhino", "next_batch": 1.0}]})


def test_the_figures_of_the_readme_are_those_of_a_record_with_commit_date_and_machine() -> None:
    record = records.read(records.RESULTS / f"{figures.NAME}.json")
    assert re.fullmatch(r"[0-9a-f]{12}", record.commit)
    assert date.fromisoformat(record.date[:10])
    assert " cores, " in record.machine
    readme = figures.README.read_text()
    assert figures.with_figures(readme, record) == readme, "`make figures` writes them"
