"""A benchmark as a process of its own."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from benchmarks.registry import Run
from benchmarks.report import running


def test_a_benchmark_that_does_not_end_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stubborn = "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nprint('deaf', flush=True)\n"
    module = tmp_path / "benchmarks" / "stubborn.py"
    module.parent.mkdir()
    module.write_text(f"{stubborn}time.sleep(120)\n")
    monkeypatch.setattr(running, "CLEAN_UP_S", 0.2)
    began = time.monotonic()
    found = running.carry_out(Run("stubborn", 1, ()), tmp_path, 5.0, tmp_path)
    assert found.exit_code == running.TIMEOUT_CODE
    assert time.monotonic() - began < 60
    assert (tmp_path / found.log).read_text() == "deaf\n"
