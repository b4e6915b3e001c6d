"""Bulk replication: the same files through Rhino's chain and through each peer, in turns.

A virtual machine may hand freed memory back to its host, and then the next page costs several times as much as one
freed just now. So each subject waits until the memory freed by the one before is gone, and the order changes with each
round.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import uvloop

from benchmarks.replication import peers
from benchmarks.replication.sidecars import JOB, Chain, Client, attached, chain
from benchmarks.replication.source import Source
from benchmarks.usage import Meter, Used
from rhino_core.ids import StoreId

PARTITIONS = 8
MB = 1_000_000
SUBJECTS = ("rhino", "bare", "rsync", "cp")
SETTLE_S = 5.0  # Linux reports free pages to the host 2 s after they were freed, in portions


@dataclass(frozen=True, slots=True)
class Result:
    """One run of one subject. `hops`: copies made over the network."""

    subject: str
    hops: int
    mb_per_s: float
    cpu_s_per_gb_hop: float
    peak_resident_mb: float | None = None  # of the largest sidecar


def rhino(source: Source, folder: Path, replicas: int) -> Result:
    """From the first file handed to the owner's sidecar until all members hold all of them."""
    with chain(folder, replicas + 1) as members:
        used = uvloop.run(_push_all(source, members, replicas))
        return _result("rhino", source, replicas, used, members.peak_resident_bytes() / MB)


async def _push_all(source: Source, members: Chain, replicas: int) -> Used:
    async with attached(members.socket, replicas, min_copies=replicas + 1) as client:
        await _warm_up(client, source)
        with Meter([*members.pids, os.getpid()]) as meter:
            await push(client, source, first_partition=0)
        return meter.used


async def _warm_up(client: Client, source: Source) -> None:
    """Groups are made and links opened before the clock starts: both happen once in the life of a job."""
    small = source.folder.parent / "small.sst"
    small.write_bytes(os.urandom(1000))
    await asyncio.gather(*(client.snapshot(StoreId(JOB, 0, p, "warm-up"), [small]) for p in range(PARTITIONS)))


async def push(client: Client, source: Source, *, first_partition: int) -> None:
    """All files, as one snapshot per partition."""
    paths = [source.paths[number::PARTITIONS] for number in range(PARTITIONS)]
    stores = [StoreId(JOB, 0, first_partition + number, "default") for number in range(PARTITIONS)]
    await asyncio.gather(*(client.snapshot(store, files) for store, files in zip(stores, paths, strict=True)))


def compare(source: Source, folder: Path, hops: tuple[int, ...], chunk_bytes: int, turn: int) -> list[Result]:
    """Round number `turn`: every subject once, each in a folder of its own, removed afterwards."""
    results = []
    for hop in hops:
        subjects = list(_subjects(source, hop, chunk_bytes).items())
        first = turn % len(subjects)
        for name, run in subjects[first:] + subjects[:first]:
            target = folder / f"{name}-{hop}"
            time.sleep(settle_s(source))
            try:
                results.append(run(target))
            finally:
                shutil.rmtree(target, ignore_errors=True)
                os.sync()  # nobody pays for writing back what another one wrote
    return results


def settle_s(source: Source) -> float:
    """Seconds to wait between two subjects. The tests' few bytes make no difference."""
    return min(SETTLE_S, source.total_bytes / MB / 100)


def _subjects(source: Source, hops: int, chunk_bytes: int) -> dict[str, Callable[[Path], Result]]:
    subjects: dict[str, Callable[[Path], Result]] = {
        "rhino": lambda folder: rhino(source, folder, hops),
        "bare": lambda folder: _result("bare", source, hops, peers.bare(source, folder, hops, chunk_bytes)),
    }
    if peers.rsync_available():
        subjects["rsync"] = lambda folder: _result("rsync", source, hops, peers.rsync(source, folder, hops))
    if hops == 1:
        subjects["cp"] = lambda folder: _result("cp", source, hops, peers.copy(source, folder))
    return subjects


def _result(subject: str, source: Source, hops: int, used: Used, peak_mb: float | None = None) -> Result:
    gb = source.total_bytes / 1e9
    return Result(subject, hops, source.total_bytes / MB / used.wall_s, used.cpu_s / gb / hops, peak_mb)
