"""The local folders of a real JVM with Rhino's plugin, while it runs and after it was killed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from worker_runtime.upkeep.local_folders import LOCK, LocalFolders

pytestmark = [pytest.mark.spark, pytest.mark.timeout(200)]
ROOT = Path(__file__).parents[3]


def test_the_sidecar_removes_the_local_folders_of_a_killed_executor(tmp_path: Path) -> None:
    local = tmp_path / "local"
    strangers = local / "spark-of-somebody-else"
    strangers.mkdir(parents=True)
    environment = {**os.environ, "SPARK_LOCAL_DIRS": str(local)}
    command = [sys.executable, "-m", "tests.spark_connector.local.killed", str(tmp_path)]
    with subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "running\n"
            folders, mine = LocalFolders(local), {path.with_suffix("") for path in local.glob(f"*{LOCK}")}
            assert {path.name.split("-")[0] for path in mine} == {"blockmgr", "spark"}
            assert any(path.suffix == ".sst" or path.name == "CURRENT" for path in local.rglob("*")), "an open store"
            folders.look()
            folders.look()
            assert all(path.exists() for path in mine)
            jvm = next(
                child for child in psutil.Process(process.pid).children(recursive=True) if child.name() == "java"
            )
            jvm.kill()
            psutil.wait_procs([jvm], timeout=20)
        finally:
            process.kill()
    folders.look()
    assert [*local.iterdir()] == [strangers]
