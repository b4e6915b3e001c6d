"""Fixtures of several tests of the sidecar."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.worker_runtime.cluster import Cluster
from tests.worker_runtime.storage.rig import Disk


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    made = Disk(tmp_path / "data")
    yield made
    made.store.close()


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    """Without sidecars yet, around a fake manager. With a real one, `address` is that one's."""
    async with Cluster(tmp_path) as made:
        yield made
