"""The benchmark of replication runs and reports; what it measures at this size says nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.nightly
def test_a_small_run_reports_every_subject(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    command = [sys.executable, "-m", "benchmarks.replication", "--bytes", "4000000", "--files", "16", "--rounds", "1"]
    command += ["--commits", "20", "--parts", "throughput", "commits", "--dir", str(tmp_path), "--json", str(report)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=200, cwd=ROOT, check=False)
    assert run.returncode == 0, run.stderr
    measured = json.loads(report.read_text())
    subjects = {(row["subject"], row["hops"]) for row in measured["throughput"]["median"]}
    assert {("rhino", 1), ("rhino", 2), ("bare", 1), ("bare", 2), ("cp", 1)} <= subjects
    assert all(row["mb_per_s"] > 0 and row["cpu_s_per_gb_hop"] >= 0 for row in measured["throughput"]["rounds"])
    assert measured["commits"]["idle"]["commits"] >= 20
    assert 0 < measured["commits"]["idle"]["p50_ms"] <= measured["commits"]["idle"]["p99_ms"]
    assert measured["commits"]["commits_per_s"] > 0
    for column in ("cpu_us_per_commit", "cpu_us_per_commit_at_rate"):
        assert 100 < measured["commits"][column] < 1_000_000, "five processes take part in a commit"
    assert list(tmp_path.iterdir()) == [report], "everything else is removed"
