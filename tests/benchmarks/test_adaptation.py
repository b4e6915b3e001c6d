"""The benchmark of adaptation runs, reports, and fails if a trace shows what must not be."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.adaptation.__main__ import counted, rows_of
from benchmarks.adaptation.seen import observed
from handover_manager.adapt.cool_downs import CoolDowns
from workloads.adaptation import traces

ROOT = Path(__file__).resolve().parents[2]


def test_traces_are_reported_by_kind(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    command = [sys.executable, "-m", "benchmarks.adaptation", "--traces", "12", "--json", str(report)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=ROOT)
    assert run.returncode == 0, run.stderr
    found = json.loads(report.read_text())
    rows = {row["kind"]: row for row in found["traces"]}
    assert rows["all"]["traces"] == 12
    assert sum(row["traces"] for kind, row in rows.items() if kind in _shapes()) == 12
    assert rows["all"]["moves"] >= rows["all"]["plans"] > 0
    assert all(row["times"] == 0 for row in found["checks"])


def _shapes() -> set[str]:
    return {shape.__name__.replace("_", " ") for shape in traces.SHAPES}


def test_a_planted_bug_is_counted_as_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CoolDowns, "active", lambda self, job, now: {})
    seen = [observed(traces.run(7))]
    assert counted(seen)["moved again within its cool-down"] > 0
    assert rows_of(seen)[-1].problems == sum(counted(seen).values())
