"""Each program of the user guide runs as it is, in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PRINTS = {
    "settings": "spark.rhino.manager = ",
    "integration": "by the checkpoint location, rhino://file/",
    "moving_state": "the query goes on: batch",
    "modify": "the query was not restarted: batch",
    "branch": "the live query: batch",
    "supervise": "the new code: stopped",
    "restructure": "the new code: batch",
}


def test_each_program_is_known_here() -> None:
    names = {path.stem for path in (ROOT / "examples/guide").glob("*.py")}
    assert names - {"__init__", "common"} == set(PRINTS)


@pytest.mark.spark
@pytest.mark.nightly
@pytest.mark.parametrize("name", sorted(PRINTS))
def test_it_runs_as_it_is(name: str) -> None:
    command = [sys.executable, "-m", f"examples.guide.{name}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    assert PRINTS[name] in done.stdout
