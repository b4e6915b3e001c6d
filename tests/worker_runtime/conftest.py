"""Fixtures of several tests of the sidecar."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.worker_runtime.storage.rig import Disk


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    made = Disk(tmp_path / "data")
    yield made
    made.store.close()
