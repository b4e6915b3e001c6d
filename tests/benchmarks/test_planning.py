"""The benchmark of plans runs and reports; its plans at this size are within their bands."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_plans_from_scratch_and_after_changes_are_reported(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    options = ["--workers", "40", "--nodes", "4000", "--ticks", "2", "--rounds", "10", "--json", str(report)]
    command = [sys.executable, "-m", "benchmarks.planning", *options]
    run = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=ROOT)
    assert run.returncode == 0, run.stderr
    plans = json.loads(report.read_text())["plans"]
    assert [plan["plan"] for plan in plans] == ["from scratch", "tick 1", "lost worker"]
    assert plans[0]["moves"] == 4000
    at_random, four, two = json.loads(report.read_text())["losses"]
    assert at_random["fatal_sets"] > 50 * four["fatal_sets"] > 50 * two["fatal_sets"] > 0
    assert all(plan["time_gap"] <= 0.0102 for plan in plans)
    assert all(plan["copied_lower_bytes"] <= plan["copied_bytes"] + 1 for plan in plans)
