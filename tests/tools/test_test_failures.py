"""The end of `make test` names what failed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tools.test_failures import failures

TESTS = """
import pytest

def test_passes():
    assert True

def test_fails():
    print("said before")
    assert [1, 2] == [1, 3]

@pytest.fixture
def broken():
    raise OSError("no port is free")

def test_cannot_run(broken):
    assert broken
"""


def test_failures_and_errors_are_shown_with_their_output(tmp_path: Path) -> None:
    (tmp_path / "test_some.py").write_text(TESTS)
    file = tmp_path / "test-rest.xml"
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", f"--junitxml={file}", "test_some.py"]
    subprocess.run(command, cwd=tmp_path, stdout=subprocess.DEVNULL, check=False, timeout=60)
    failed, broken = failures(file)
    assert failed.startswith("FAILED test_some::test_fails in test-rest\n")
    assert "said before" in failed
    assert "assert [1, 2] == [1, 3]" in failed
    assert broken.startswith("FAILED test_some::test_cannot_run")
    assert "no port is free" in broken
