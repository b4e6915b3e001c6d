"""Executors have the Python workers that changes of functions need, before there is one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]


def test_an_executor_has_a_worker_more_than_its_batches_need(tmp_path: Path) -> None:
    assert said_by("python_workers", tmp_path) == {
        "one more than batches need": True,
        "at once": True,
        "changes": ["in_force", "in_force"],
        "workers": 2,
    }


def test_an_executor_keeps_workers_for_a_query_without_python_functions(tmp_path: Path) -> None:
    assert said_by("kept_python_workers", tmp_path) == {
        "one for each slot": True,
        "with pandas": 2,
        "as good as used": True,
        "change": "in_force",
        "the same workers": True,
    }


def said_by(module: str, folder: Path) -> Any:
    """A process of its own, because it needs a session of its own. Its workers run in this Python without a setting."""
    command = [sys.executable, "-m", f"tests.spark.{module}", str(folder)]
    environment = {name: value for name, value in os.environ.items() if name != "PYSPARK_PYTHON"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])
