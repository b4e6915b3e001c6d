"""A benchmark as a process of its own."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from benchmarks import registry
from benchmarks.registry import Run
from benchmarks.report import running


def test_a_benchmark_that_does_not_end_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stubborn = "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nprint('deaf', flush=True)\n"
    (tmp_path / "stubborn.py").write_text(f"{stubborn}time.sleep(100)\n")
    monkeypatch.setattr(registry, "module_of", lambda name: name)
    monkeypatch.setattr(running, "CLEAN_UP_S", 0.2)
    began = time.monotonic()
    found = running.carry_out(Run("stubborn", 1, ()), tmp_path, 5.0, tmp_path)
    assert found.exit_code == running.TIMEOUT_CODE
    assert time.monotonic() - began < 60
    assert (tmp_path / found.log).read_text() == "deaf\n"
