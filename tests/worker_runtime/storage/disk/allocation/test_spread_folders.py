"""The hint to the file system: where it is known, it is set, and elsewhere nothing happens."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.worker_runtime.tmpfs import tmpfs
from worker_runtime.storage.disk.allocation.allocator import spread_subfolders


def test_ext4_is_told(tmp_path: Path) -> None:
    kind = subprocess.run(["stat", "-f", "-c", "%T", tmp_path], capture_output=True, text=True, check=True).stdout
    if not kind.startswith("ext"):
        pytest.skip(f"{tmp_path} is on {kind.strip()}")
    assert not _marked(tmp_path)
    for _ in range(2):
        spread_subfolders(tmp_path)
        assert _marked(tmp_path)


def test_others_are_left_alone(tmp_path: Path) -> None:
    with tmpfs(tmp_path / "disk", 1) as folder:
        spread_subfolders(folder)
        (folder / "below").mkdir()
        assert (folder / "below").is_dir()


def _marked(folder: Path) -> bool:
    """FS_TOPDIR_FL of FS_IOC_GETFLAGS."""
    fd = os.open(folder, os.O_RDONLY)
    try:
        flags = fcntl.ioctl(fd, 0x80086601, bytes(8))
    finally:
        os.close(fd)
    return bool(int.from_bytes(flags[:4], sys.byteorder) & 0x20000)
