"""The engine, its commands and the demo import nothing of `query_evolution`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rhino.cli.main import app

ROOT = Path(__file__).parents[2]
# Python runs it first in each process.
HIDE = """
import sys

class Without:
    def __init__(self, finder):
        self._finder = finder

    def find_spec(self, name, path=None, target=None):
        hidden = name.partition(".")[0] == "query_evolution"
        return None if hidden else self._finder.find_spec(name, path, target)

    def __getattr__(self, name):
        return getattr(self._finder, name)

sys.meta_path[:] = [Without(finder) for finder in sys.meta_path]
"""
IMPORT_ALL = """
import importlib, pkgutil
packages = (
    "rhino rhino_model rhino_core worker_runtime replication_manager handover_manager spark_connector examples"
).split()
names = [
    found.name
    for package in packages
    for found in pkgutil.walk_packages(importlib.import_module(package).__path__, f"{package}.")
]
for name in names:
    if not name.endswith("__main__") and not name.startswith(("examples.guide.", "examples.survive.")):  # of both roofs
        importlib.import_module(name)
print(len(names))
"""


@pytest.fixture
def hidden(tmp_path: Path) -> dict[str, str]:
    """The environment of a process without `query_evolution`."""
    (tmp_path / "sitecustomize.py").write_text(HIDE)
    return os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT), str(ROOT / "proto")])}


def run(arguments: list[str], environment: dict[str, str], timeout_s: float = 120) -> str:
    done = subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=timeout_s
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def test_it_is_hidden(hidden: dict[str, str]) -> None:
    with pytest.raises(AssertionError, match="No module named 'query_evolution'"):
        run(["-c", "import query_evolution"], hidden)


def test_all_modules_of_the_engine_are_imported(hidden: dict[str, str]) -> None:
    assert int(run(["-c", IMPORT_ALL], hidden)) > 350


def test_the_command_line_lacks_its_commands_only(hidden: dict[str, str]) -> None:
    alone = run(["-m", "rhino.cli.main", "--help"], hidden)
    assert "handover" in alone
    assert "modify" not in alone
    assert "modify" in CliRunner().invoke(app, ["--help"]).output


@pytest.mark.spark
@pytest.mark.nightly
@pytest.mark.timeout(600)
def test_the_demo_runs(hidden: dict[str, str], tmp_path: Path) -> None:
    run(["-m", "examples.demo", "--events", "60000", "--batches", "20", "--out", str(tmp_path / "out")], hidden, 500)
