"""Parts of the tests of sidecar that other tests use as well."""

from __future__ import annotations

from tests.worker_runtime.cluster import Client, changelog_bytes
from tests.worker_runtime.scenario import STORE, version


async def write(client: Client, count: int, *, start: int = 1) -> None:
    """Changelogs of versions start..count."""
    for number in range(start, count + 1):
        lineage = [version(n) for n in range(1, number)]
        await client.commit(STORE, version(number), changelog_bytes(number), lineage)
