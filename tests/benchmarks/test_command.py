"""The folder that a benchmark works in."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from benchmarks.command import folder


def test_a_missing_folder_is_made(tmp_path: Path) -> None:
    assert folder(str(tmp_path / "a/b")).is_dir()
    assert folder(str(tmp_path)) == tmp_path


def test_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(argparse.ArgumentTypeError, match=r"file: File exists; name a folder"):
        folder(str(tmp_path / "file"))
