"""Parts of the tests of sidecar that other tests use as well."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rhino_core.ids import StoreId, Version
from tests.worker_runtime.cluster import Cluster, changelog_bytes

STORE = StoreId("job", 0, 3, "default")


def version(number: int) -> Version:
    return Version(number, f"id{number}")


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    async with Cluster(tmp_path) as made:
        yield made


async def write(client: object, count: int, *, start: int = 1) -> None:
    """Changelogs of versions start..count."""
    for number in range(start, count + 1):
        lineage = [version(n) for n in range(1, number)]
        await client.commit(STORE, version(number), changelog_bytes(number), lineage)  # type: ignore[attr-defined]
