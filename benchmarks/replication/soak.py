"""Many gigabytes through a chain of sidecars, beside commits, while floors rise: what memory it takes."""

from __future__ import annotations

import asyncio
import itertools
import os
import time
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import grpc.aio
import uvloop

from benchmarks.replication.sidecars import JOB, Chain, Client, attached, chain
from benchmarks.replication.source import Source
from benchmarks.replication.throughput import MB, PARTITIONS
from benchmarks.usage import anonymous_bytes, peak_resident_bytes
from rhino_core.ids import StoreId, StoreVersion, Version
from rhino_core.protocol import PROTOCOL
from rhino_core.rpc.channel import aio_channel
from rhino_core.rpc.convert import store_version_to_pb
from rhino_pb import common_pb2, handover_pb2, handover_pb2_grpc

END_OF_STREAM: Any = vars(grpc.aio)["EOF"]  # missing from the stubs
REPLICAS = 2
SAMPLE_S = 0.1
COMMIT_BYTES = 64 * 1024
LINEAGE = 10
ROUNDS_STORED = 3  # of the source, before the next round waits for retention
RETENTION_TIMEOUT_S = 120.0


@dataclass(frozen=True, slots=True)
class SoakResult:
    """Memory per sidecar from head to tail of the chain: resident (with mapped files), and anonymous (allocated)."""

    replicas: int
    gb: float  # handed to the first sidecar
    wall_s: float
    commits: int  # of 64 KB, beside
    peak_resident_mb: tuple[float, ...]
    peak_anonymous_mb: tuple[float, ...]
    stored_gb_at_end: float  # on the first sidecar


def measure(source: Source, folder: Path, gigabytes: float) -> SoakResult:
    """The source again and again as new snapshots of the same stores, until so much has passed."""
    with chain(folder, REPLICAS + 1) as members:
        return uvloop.run(_soak(source, members, gigabytes))


async def _soak(source: Source, members: Chain, gigabytes: float) -> SoakResult:
    pids = [sidecar.pid for sidecar in members.sidecars]
    async with attached(members.socket, REPLICAS, min_copies=REPLICAS + 1) as client:
        peaks = dict.fromkeys(pids, 0)
        commits: list[float] = []
        beside = [asyncio.create_task(_sample(peaks)), asyncio.create_task(_keep_committing(client, commits))]
        started = time.monotonic()
        rounds = 0
        while rounds * source.total_bytes < gigabytes * 1e9:
            rounds += 1
            await _publish(members.manager_address, rounds, await _round(client, source, rounds))
            await _until_collected(client, source)
            for task in beside:
                if task.done():
                    task.result()
        wall_s = time.monotonic() - started
        stored = await client.stored_bytes()
        for task in beside:
            task.cancel()
        await asyncio.gather(*beside, return_exceptions=True)
    return SoakResult(
        REPLICAS,
        rounds * source.total_bytes / 1e9,
        wall_s,
        len(commits),
        tuple(peak_resident_bytes(pid) / MB for pid in pids),
        tuple(peaks[pid] / MB for pid in pids),
        stored / 1e9,
    )


async def _round(client: Client, source: Source, number: int) -> list[StoreVersion]:
    stores = [StoreId(JOB, 0, partition, "default") for partition in range(PARTITIONS)]
    files = [source.paths[partition::PARTITIONS] for partition in range(PARTITIONS)]
    versions = [Version(number, uuid.uuid4().hex) for _ in stores]
    await asyncio.gather(*map(client.snapshot, stores, files, versions))
    return [StoreVersion(store, version) for store, version in zip(stores, versions, strict=True)]


async def _publish(manager: str, batch: int, versions: list[StoreVersion]) -> None:
    """As the driver does after a batch: nothing older is needed any more."""
    named = [store_version_to_pb(version) for version in versions]
    groups = [handover_pb2.TaskGroup(task_group=0, operators=[0], partitions=PARTITIONS)]
    floors = [common_pb2.Floor(version=version) for version in named]
    logged = handover_pb2.BatchLogged(job=JOB, run_id=JOB, batch_id=batch, versions=named, floors=floors)
    async with aio_channel(manager) as channel:
        session = cast(Any, handover_pb2_grpc.HandoverManagerStub(channel)).DriverSession(timeout=10)
        hello = handover_pb2.DriverHello(application_id="soak", protocol=PROTOCOL)
        await session.write(handover_pb2.DriverEvent(hello=hello))
        await session.read()
        started = handover_pb2.QueryStarted(job=JOB, run_id=JOB, task_groups=groups)
        await session.write(handover_pb2.DriverEvent(query_started=started))
        await session.write(handover_pb2.DriverEvent(batch_logged=logged))
        await session.done_writing()
        while await session.read() is not END_OF_STREAM:  # until the manager has read all of it
            pass


async def _until_collected(client: Client, source: Source) -> None:
    async with asyncio.timeout(RETENTION_TIMEOUT_S):
        while await client.stored_bytes() > ROUNDS_STORED * source.total_bytes:  # noqa: ASYNC110  another process
            await asyncio.sleep(SAMPLE_S)


async def _sample(peaks: dict[int, int]) -> None:
    while True:
        for pid in peaks:
            peaks[pid] = max(peaks[pid], anonymous_bytes(pid))
        await asyncio.sleep(SAMPLE_S)


async def _keep_committing(client: Client, durations: list[float]) -> None:
    content = os.urandom(COMMIT_BYTES)
    for turn in itertools.count():
        lineage: list[Version] = []
        for number in range(1, LINEAGE + 1):
            started = time.perf_counter()
            version = Version(number, os.urandom(16).hex())
            await client.commit(StoreId(JOB, 1, 0, f"s{turn}"), version, content, tuple(lineage))
            lineage.append(version)
            durations.append(time.perf_counter() - started)
