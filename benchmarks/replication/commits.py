"""Commit latency idle and beside bulk replication, and commits per second."""

from __future__ import annotations

import asyncio
import itertools
import os
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import uvloop

from benchmarks.replication.sidecars import JOB, Client, attached, chain
from benchmarks.replication.source import Source
from benchmarks.replication.throughput import PARTITIONS, push
from rhino.ids import StoreId, Version

LATENCY_BYTES, RATE_BYTES = 64 * 1024, 4 * 1024
LINEAGE = 10  # changelogs of a store before the next store is used
RATE_STORES = 32  # that commit at the same time


@dataclass(frozen=True, slots=True)
class Latency:
    """Of `commits` one after the other, in milliseconds."""

    commits: int
    p50_ms: float
    p99_ms: float
    max_ms: float


@dataclass(frozen=True, slots=True)
class CommitResults:
    replicas: int
    idle: Latency
    beside_bulk: Latency
    commits_per_s: float  # 4 KB, r = 1


def measure(source: Source, folder: Path, commits: int) -> CommitResults:
    """Latency with r = 2 and all three copies awaited; rate with r = 1."""
    with chain(folder / "latency", 3) as members:
        idle, loaded = uvloop.run(_latencies(source, members.socket, commits))
    with chain(folder / "rate", 2) as members:
        rate = uvloop.run(_rate(members.socket, commits))
    return CommitResults(2, idle, loaded, rate)


async def _latencies(source: Source, socket: Path, commits: int) -> tuple[Latency, Latency]:
    async with attached(socket, 2, min_copies=3) as client:
        # The bulk files take other partitions than the commits; the first commits warm links and groups up.
        turns = itertools.count()
        await _one_after_the_other(client, turns, 50)
        await push(client, _part(source), first_partition=100)
        idle = await _one_after_the_other(client, turns, commits)
        bulk = asyncio.create_task(_keep_pushing(client, source))
        await asyncio.sleep(0.5)  # the bulk lane is to be full
        loaded = await _one_after_the_other(client, turns, commits)
        bulk.cancel()
        await asyncio.gather(bulk, return_exceptions=True)
        return idle, loaded


def _part(source: Source) -> Source:
    return Source(source.folder, source.paths[:PARTITIONS], source.file_bytes)


async def _keep_pushing(client: Client, source: Source) -> None:
    for turn in itertools.count(2):
        await push(client, source, first_partition=100 * turn)


async def _one_after_the_other(client: Client, turns: Iterator[int], commits: int) -> Latency:
    content = os.urandom(LATENCY_BYTES)
    durations: list[float] = []
    while len(durations) < commits:
        for work in _changelogs(client, 0, f"s{next(turns)}", content):
            started = time.perf_counter()
            await work()
            durations.append((time.perf_counter() - started) * 1000)
    p50, p99 = np.percentile(durations, [50, 99])
    return Latency(len(durations), float(p50), float(p99), max(durations))


def _changelogs(client: Client, partition: int, name: str, content: bytes) -> Iterator[Callable[[], Awaitable[None]]]:
    """Commits of one store, each with the lineage of those before it."""
    store = StoreId(JOB, 1, partition, name)
    lineage: list[Version] = []
    for number in range(1, LINEAGE + 1):
        version, before = Version(number, os.urandom(16).hex()), tuple(lineage)
        yield lambda version=version, before=before: client.commit(store, version, content, before)  # type: ignore[misc]
        lineage.append(version)


async def _rate(socket: Path, commits: int) -> float:
    """Many stores at the same time, each one commit after the other."""
    content = os.urandom(RATE_BYTES)
    async with attached(socket, 1, min_copies=2) as client:

        async def store(number: int, rounds: int, prefix: str) -> None:
            for turn in range(rounds):
                for work in _changelogs(client, number % PARTITIONS, f"{prefix}{number}-{turn}", content):
                    await work()

        await asyncio.gather(*(store(number, 1, "warm") for number in range(RATE_STORES)))
        rounds = max(1, commits * 4 // (RATE_STORES * LINEAGE))
        started = time.perf_counter()
        await asyncio.gather(*(store(number, rounds, "rate") for number in range(RATE_STORES)))
        return RATE_STORES * LINEAGE * rounds / (time.perf_counter() - started)
