"""Builds the wheel as it would be published, but with the jar of the installed Spark only."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from spark_connector.jar import ensure_jar

ROOT = Path(__file__).parents[2]
PACKAGES = {
    "handover_manager",
    "replication_manager",
    "rhino",
    "rhino_archive",
    "rhino_core",
    "rhino_model",
    "rhino_pb",
    "spark_connector",
    "query_evolution",
    "worker_runtime",
}
FILES = ("pyproject.toml", "README.md", "LICENSE")


def build_wheel(folder: Path) -> Path:
    """Returns the path of the wheel in `folder`. It is built from a copy: a build leaves files behind."""
    source = folder / "source"
    for name in sorted(PACKAGES - {"rhino_pb"} | {"proto", "tests/deploy"}):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__", "*.jar"))
    (source / "spark_connector/jars").mkdir(exist_ok=True)
    shutil.copy(ensure_jar(), source / "spark_connector/jars")
    for name in FILES:
        shutil.copy(ROOT / name, source)
    build = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--quiet", "-w", str(folder)]
    done = subprocess.run([*build, str(source)], capture_output=True, text=True, timeout=250, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    (wheel,) = folder.glob("*.whl")
    return wheel
