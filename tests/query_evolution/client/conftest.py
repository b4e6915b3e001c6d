from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test waits for drivers that may come back after a manager's start."""
    monkeypatch.setattr("handover_manager.machine.SETTLE_S", 0.0)
