"""Another application beside that of a benchmark ends with one line, or says where its log is."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.applications import Application
from rhino.testing.query_watch import RunError


def started(code: str) -> Application:
    process = subprocess.Popen(
        [sys.executable, "-c", code], text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    return Application(process, Path("/somewhere/driver.log"))


def test_the_last_line_is_the_outcome() -> None:
    assert started("print('begins'); print('ended replaced')").outcome(30) == "ended replaced"


@pytest.mark.parametrize("code", ["raise SystemExit(3)", "pass", "print('ended'); raise SystemExit(1)"])
def test_an_application_without_an_outcome_is_an_error(code: str) -> None:
    with pytest.raises(RunError, match=r"has ended with \d; see /somewhere/driver.log"):
        started(code).outcome(30)


def test_an_application_that_does_not_end_is_an_error() -> None:
    waiting = started("import time; time.sleep(60)")
    assert waiting.running
    with pytest.raises(RunError, match=r"has not ended within 0\.1 s"):
        waiting.outcome(0.1)
    waiting._process.kill()
    assert waiting._process.wait() == -9
