"""`local_session()` in a process that has a session already, or had one: refused before anything is changed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.nightly, pytest.mark.timeout(400)]
ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("sessions")
    command = [sys.executable, "-m", "tests.spark.notebook.sessions", str(folder)]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=380, check=False)
    assert result.returncode == 0, result.stderr[-4000:]
    found: dict[str, Any] = json.loads(result.stdout.splitlines()[-1])
    return found


@pytest.mark.parametrize("call", ["local_session", "rhino_conf"])
def test_a_session_without_rhino_is_refused_and_left_alone(said: dict[str, Any], call: str) -> None:
    assert said[call].startswith("PreconditionError: a SparkSession without Rhino runs in this process")
    assert "Call spark.stop()" in said[call]
    assert said["unchanged"]
    assert said["nothing started"]


def test_after_its_end_a_session_runs_in_the_jvm_that_was_started_without_the_jar(said: dict[str, Any]) -> None:
    assert said["rows"] == [10, 20, 30]


def test_a_second_call_returns_the_session_that_runs(said: dict[str, Any]) -> None:
    assert said["same again"]


def test_another_directory_needs_another_session(said: dict[str, Any]) -> None:
    assert said["other directory"].startswith("PreconditionError: the session that runs in this process does not use")
    assert "Call spark.stop()" in said["other directory"]
    assert said["other not started"]
    assert said["other rows"] == [10, 20, 30]
