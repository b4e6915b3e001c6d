"""A checkpoint whose locks are of this process, and a supervisor that runs its query."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from query_evolution.replace import supervise as module
from query_evolution.replace.core import Phase
from query_evolution.replace.supervise import Supervised
from spark_connector import run_locks
from tests.query_evolution.replace.fakes import FakeDriver, locks, supervised, wait_for


@pytest.fixture
def checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    for log in ("offsets", "commits"):
        (tmp_path / log).mkdir()
    (tmp_path / "metadata").write_text('{"id": "job"}')
    (tmp_path / "restarts").mkdir()
    monkeypatch.setattr(module, "TROUBLE_S", 0.01)
    monkeypatch.setattr(module, "rehearse", lambda *rows, **options: None)
    monkeypatch.setattr(run_locks, "is_locked", lambda path: path in locks)
    yield tmp_path
    locks.clear()


@pytest.fixture
def former(checkpoint: Path) -> Iterator[tuple[Supervised, FakeDriver]]:
    running, driver = supervised(checkpoint)
    wait_for(lambda: running.phase is Phase.RUNNING)
    yield running, driver
    running.stop()
