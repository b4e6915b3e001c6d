"""The hint to the file system: where it is known, it is set, and elsewhere nothing happens."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.worker_runtime.tmpfs import tmpfs
from worker_runtime.storage.spreading import spread_subfolders


def test_ext4_is_told(tmp_path: Path) -> None:
    kind = subprocess.run(["stat", "-f", "-c", "%T", tmp_path], capture_output=True, text=True, check=True).stdout
    if not kind.startswith("ext"):
        pytest.skip(f"{tmp_path} is on {kind.strip()}")
    spread_subfolders(tmp_path)
    assert "T" in _flags(tmp_path)
    spread_subfolders(tmp_path)
    assert "T" in _flags(tmp_path)


def test_others_are_left_alone(tmp_path: Path) -> None:
    with tmpfs(tmp_path / "disk", 1) as folder:
        spread_subfolders(folder)
        (folder / "below").mkdir()


def _flags(folder: Path) -> str:
    return subprocess.run(["lsattr", "-d", folder], capture_output=True, text=True, check=True).stdout.split()[0]
