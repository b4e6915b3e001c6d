"""The benchmark of the file allocator runs and reports; what it measures at this size says nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from benchmarks.allocation.__main__ import PARTS

ROOT = Path(__file__).resolve().parents[2]


def test_every_measure_is_compared_with_its_absence(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    command = [sys.executable, "-m", "benchmarks.allocation", "--rounds", "2", "--scale", "0.01"]
    command += ["--dir", str(tmp_path), "--json", str(report)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=ROOT, check=False)
    assert run.returncode == 0, run.stderr
    rounds = json.loads(report.read_text())["rounds"]
    assert set(rounds) == set(PARTS)
    assert all(len(rounds[part][way]) == 2 and min(rounds[part][way]) >= 0 for part in PARTS for way in rounds[part])
    assert list(tmp_path.iterdir()) == [report], "everything else is removed"
