"""Parts of the tests of restructure that other tests use as well."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

from query_evolution import Restructured, restructure
from rhino_core.ids import StoreId, Version
from rhino_pb import sidecar_pb2
from spark_connector.query_checkpoint import QueryCheckpoint
from tests.query_evolution.structure.described import write_checkpoint, write_sketch
from tests.worker_runtime.cluster import Client, Cluster, changelog_bytes
from tests.worker_runtime.support.with_manager import manager, settings_of

COUNT = "stateStoreSave: k long -> count long?"


USERS = "dedupe: user string -> "


RECENT = "dedupeWithinWatermark: user string -> expiresAtMicros long"


OLD = (COUNT, USERS)


NEW = (RECENT, COUNT)


BATCHES = 3


@contextlib.asynccontextmanager
async def made(tmp_path: Path, new: Sequence[str] = NEW) -> AsyncIterator[tuple[Cluster, str, Path]]:
    """Two workers. The first owns the first partition of both operators, the second the other one."""
    (tmp_path / "cluster").mkdir()
    async with Cluster(tmp_path / "cluster") as cluster, manager(settings_of(tmp_path)) as address:
        cluster.address = address
        processes = await cluster.start("a", "b")
        for partition, process in enumerate(processes):
            async with process.attach() as client:
                for operator in range(len(OLD)):
                    await write(client, StoreId("job-1", operator, partition, "default"))
        write_checkpoint(tmp_path / "q", OLD, batches=BATCHES)
        write_sketch(tmp_path / "sketch", new)
        yield cluster, address, tmp_path


def named(store: StoreId, batch: int) -> Version:
    """As `write_checkpoint` names it."""
    return Version(batch + 1, f"{store.operator}-{store.partition}-{batch}")


async def write(client: Client, store: StoreId) -> None:
    for batch in range(BATCHES):
        lineage = [named(store, before) for before in range(batch)]
        await client.commit(store, named(store, batch), changelog_bytes(batch), lineage)


async def run(address: str, folder: Path, **options: Any) -> Restructured:
    return await asyncio.to_thread(restructure, address, folder / "q", folder / "new", folder / "sketch", **options)


async def check_opens(cluster: Cluster, checkpoint: Path) -> None:
    """Every version that the checkpoint names opens on the worker that owns it, and the next one is written there."""
    for store, version in QueryCheckpoint(checkpoint).logged().versions:
        async with cluster.sidecars["ab"[store.partition]].attach() as client:
            reply = await client.prepare(store, version)
            assert reply.state == sidecar_pb2.PREPARE_STATE_READY, f"{store}: {reply.message}"
            following = Version(version.version + 1, "next")
            former = version.checkpoint_id.rpartition("-")[0]
            lineage = [Version(number, f"{former}-{number - 1}") for number in range(1, version.version)]
            born = len(version.checkpoint_id) == 36  # a UUID
            await client.commit(store, following, changelog_bytes(9), [*([] if born else lineage), version])
