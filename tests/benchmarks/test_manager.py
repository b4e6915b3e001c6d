"""The benchmark of the manager runs and reports; the times it measures at this size say little."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.nightly
def test_a_manager_is_measured_through_its_steady_time_and_a_restart(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    options = ["--workers", "14", "--probes", "4", "--groups", "80", "--groups-of-a-query", "40"]
    options += ["--batch-s", "1", "--warm-s", "1", "--seconds", "6", "--dir", str(tmp_path), "--json", str(report)]
    command = [sys.executable, "-m", "benchmarks.manager", *options]
    run = subprocess.run(command, capture_output=True, text=True, timeout=240, cwd=ROOT)
    assert run.returncode == 0, run.stderr
    (figures,) = json.loads(report.read_text())["managers"]
    assert figures["batches_a_minute"] > 0, "the drivers' batches were reported"
    assert figures["news_a_second"] > 0, "the sidecars heard of the floors"
    assert figures["heartbeats_a_second"] > 14
    assert figures["changed_groups"] == 0, "a restart of the manager alone moves nothing"
    assert list(tmp_path.iterdir()) == [report], "everything else is removed"
