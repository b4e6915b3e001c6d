"""Parts of the tests of rebuild that other tests use as well."""

from __future__ import annotations

from pathlib import Path

from rhino_core.ids import StoreId, Version
from spark_connector.query_checkpoint import QueryCheckpoint
from tests.query_evolution.structure.described import PARTITIONS, write_rebuilt
from tests.query_evolution.support.restructure import (
    BATCHES,
    NEW,
)
from tests.worker_runtime.cluster import Cluster, changelog_bytes

REBUILT_JOB = "job-2"


async def write_state(cluster: Cluster, folder: Path, described: tuple[str, ...] = NEW) -> QueryCheckpoint:
    """The rebuilt checkpoint, with state on the workers: each partition is owned by the other one than the former's."""
    for partition in range(PARTITIONS):
        async with cluster.sidecars["ba"[partition]].attach() as client:
            for operator in range(len(described)):
                store = StoreId(REBUILT_JOB, operator, partition, "default")
                names = [Version(batch + 1, f"r{operator}-{partition}-{batch}") for batch in range(BATCHES)]
                for batch, name in enumerate(names):
                    await client.commit(store, name, changelog_bytes(50 + batch), names[:batch])
    return write_rebuilt(folder / "rebuilt", described, batches=BATCHES)
