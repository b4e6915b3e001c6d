"""The scene of the tests of the archive."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rhino_archive.bucket import Bucket
from rhino_archive.claims import claim
from tests.worker_runtime.archiving.scene import Scene
from tests.worker_runtime.cluster import Cluster


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    (tmp_path / "archive").mkdir()
    await claim(Bucket(str(tmp_path / "archive")), "job", "cluster")
    async with Cluster(tmp_path) as cluster:
        yield Scene(cluster, tmp_path / "archive")
