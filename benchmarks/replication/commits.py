"""Commit latency idle, beside bulk replication and on busy processors, commits per second, and the cost of a commit.

Times say little on a machine with other work. Processor time says more: compare it between revisions.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import uvloop

from benchmarks.burning import burning
from benchmarks.replication.sidecars import JOB, Chain, Client, attached, chain
from benchmarks.replication.source import Source
from benchmarks.replication.throughput import PARTITIONS, push
from benchmarks.usage import Meter
from rhino_core.ids import StoreId, StoreVersion, Version

LATENCY_BYTES, RATE_BYTES = 64 * 1024, 4 * 1024
LINEAGE = 10  # changelogs of a store from one snapshot to the next, as with Spark's default
RATE_STORES = 32  # that commit at the same time


@dataclass(frozen=True, slots=True)
class Latency:
    """The latency of `commits` commits, one after the other, in milliseconds."""

    commits: int
    p50_ms: float
    p99_ms: float
    max_ms: float


@dataclass(frozen=True, slots=True)
class CommitResults:
    replicas: int
    idle: Latency
    beside_bulk: Latency
    busy: Latency  # beside burning processes
    commits_per_s: float  # 4 KB, r = 1
    # Processor time of all processes (client, sidecars, manager) per commit:
    cpu_us_per_commit: float  # of those in `idle`
    cpu_us_per_commit_at_rate: float  # of those in `commits_per_s`


def measure(source: Source, folder: Path, commits: int) -> CommitResults:
    """Latency with r = 2 and all three copies awaited; rate with r = 1."""
    with chain(folder / "latency", 3) as members:
        idle, beside, busy, idle_cpu_us = uvloop.run(_latencies(source, members, commits))
    with chain(folder / "rate", 2) as members:
        rate, rate_cpu_us = uvloop.run(_rate(members, commits))
    return CommitResults(2, idle, beside, busy, rate, idle_cpu_us, rate_cpu_us)


class Writer:
    """Commits versions of one store as a query does: changelogs with their lineage, and now and then a snapshot."""

    def __init__(self, client: Client, partition: int, content: bytes) -> None:
        self._client = client
        self._store = StoreId(JOB, 1, partition, "default")
        self._content = content
        self.commits = 0
        self._lineage: list[Version] = []

    async def commit(self) -> float:
        """One changelog; returns how long it took, in milliseconds, from making its file to the answer."""
        if len(self._lineage) == LINEAGE:
            self._lineage = [await self._snapshot()]
            self.commits += 1
        version = Version(self._newest + 1, os.urandom(16).hex())
        started = time.perf_counter()
        await self._client.commit(self._store, version, self._content, self._lineage)
        took_ms = (time.perf_counter() - started) * 1000
        self._lineage.append(version)
        self.commits += 1
        return took_ms

    async def _snapshot(self) -> Version:
        return await self._client.snapshot(self._store, (), self._lineage[-1])

    @property
    def newest(self) -> StoreVersion:
        """The last version. There is one."""
        return StoreVersion(self._store, self._lineage[-1])

    @property
    def _newest(self) -> int:
        return self._lineage[-1].version if self._lineage else 0


async def _latencies(source: Source, members: Chain, commits: int) -> tuple[Latency, Latency, Latency, float]:
    """Idle, beside bulk replication, on busy processors, and microseconds of processor time of an idle commit."""
    async with attached(members.socket, 2, min_copies=3) as client:
        # The bulk files take other partitions than the commits; the first commits warm links and groups up.
        writer = Writer(client, 0, os.urandom(LATENCY_BYTES))
        await _one_after_the_other(writer, 50)
        await push(client, _part(source), first_partition=100)
        before = writer.commits
        with Meter([*members.pids, os.getpid()]) as meter:
            idle = await _one_after_the_other(writer, commits)
        idle_cpu_us = meter.used.cpu_s * 1e6 / (writer.commits - before)
        with burning():
            busy = await _one_after_the_other(writer, commits)
        bulk = asyncio.create_task(_keep_pushing(client, source))
        await asyncio.sleep(0.5)  # the bulk lane is to be full
        beside = await _one_after_the_other(writer, commits)
        bulk.cancel()
        await asyncio.gather(bulk, return_exceptions=True)
        return idle, beside, busy, idle_cpu_us


def _part(source: Source) -> Source:
    return Source(source.folder, source.paths[:PARTITIONS], source.file_bytes)


async def _keep_pushing(client: Client, source: Source) -> None:
    for turn in itertools.count(2):
        await push(client, source, first_partition=100 * turn)


async def _one_after_the_other(writer: Writer, commits: int) -> Latency:
    durations = [await writer.commit() for _ in range(commits)]
    p50, p99 = np.percentile(durations, [50, 99])
    return Latency(len(durations), float(p50), float(p99), max(durations))


async def _rate(members: Chain, commits: int) -> tuple[float, float]:
    """Many stores at the same time, each one commit after the other: commits per second, and microseconds of processor
    time for each."""
    async with attached(members.socket, 1, min_copies=2) as client:
        writers = [Writer(client, number, os.urandom(RATE_BYTES)) for number in range(RATE_STORES)]

        async def write(writer: Writer, count: int) -> None:
            for _ in range(count):
                await writer.commit()

        await asyncio.gather(*(write(writer, LINEAGE) for writer in writers))
        before = sum(writer.commits for writer in writers)
        with Meter([*members.pids, os.getpid()]) as meter:
            await asyncio.gather(*(write(writer, max(1, commits * 4 // RATE_STORES)) for writer in writers))
        done = sum(writer.commits for writer in writers) - before
        return done / meter.used.wall_s, meter.used.cpu_s * 1e6 / done
