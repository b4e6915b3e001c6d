"""Off, tracing imports nothing; without the package it says which one is missing."""

from __future__ import annotations

import subprocess
import sys

import pytest

from rhino_core.errors import InvalidSettingError
from rhino_core.tracing import tracing


async def test_off_it_yields_nothing() -> None:
    async with tracing("x", on=False) as traces:
        assert traces is None


def test_daemons_import_it_only_when_it_is_on() -> None:
    program = (
        "import sys, worker_runtime.sidecar, rhino.daemons.manager_process\n"
        "print([name for name in sys.modules if name.startswith('opentelemetry')])"
    )
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout == "[]\n"


async def test_without_the_package_it_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rhino_core.open_telemetry", None)
    with pytest.raises(InvalidSettingError, match=r"rhino-state\[otel\]"):
        async with tracing("x", on=True):
            pass
