"""The benchmark of placements runs and reports; the times it measures at this size say nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_whole_state_is_there_and_spread_blocks_are_fetched(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    command = [sys.executable, "-m", "benchmarks.placement", "--bytes", "4000000", "--files", "16", "--rounds", "1"]
    command += ["--dir", str(tmp_path), "--json", str(report)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=ROOT, check=False)
    assert run.returncode == 0, run.stderr
    state, block = json.loads(report.read_text())["rounds"]
    assert (state["placement"], state["source"], state["fetched_bytes"]) == ("state", "replica", 0)
    assert (block["placement"], block["source"]) == ("block", "remote")
    assert 0 < block["here_bytes"] < block["state_bytes"]
    assert block["here_bytes"] + block["fetched_bytes"] >= block["state_bytes"]
    assert list(tmp_path.iterdir()) == [report], "everything else is removed"
