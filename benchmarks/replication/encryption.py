"""The cost of certificates for real sidecars: the same files and commits without any, and with encrypted push streams.

The two take turns, and ratios are those of a round: what else the machine does changes both.
"""

from __future__ import annotations

import os
import shutil
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.replication import commits, throughput
from benchmarks.replication.source import Source
from rhino_core.security.sources import new_cluster_key

LATENCIES = ("idle_p50_ms", "idle_p99_ms", "beside_p50_ms", "beside_p99_ms", "busy_p50_ms", "busy_p99_ms")
WAYS = PLAIN, ENCRYPTED = "plain", "encrypted"


@dataclass(frozen=True, slots=True)
class Turn:
    """One turn. `way`: one of WAYS. Commits have two replicas."""

    way: str
    round: int
    mb_per_s: float
    cpu_s_per_gb: float  # of all processes, for one hop
    idle_p50_ms: float
    idle_p99_ms: float
    beside_p50_ms: float
    beside_p99_ms: float
    busy_p50_ms: float
    busy_p99_ms: float
    cpu_us_per_commit: float


def measure(source: Source, folder: Path, rounds: int, count: int) -> Iterator[Turn]:
    """`count` commits for each latency."""
    folder.mkdir()
    key = folder / "cluster.key"
    new_cluster_key(key)
    for number in range(rounds):
        for way in WAYS if number % 2 == 0 else WAYS[::-1]:
            time.sleep(throughput.settle_s(source))
            target = folder / "turn"
            try:
                yield _turn(source, target, str(key) if way == ENCRYPTED else "", number, count)
            finally:
                shutil.rmtree(target, ignore_errors=True)
                os.sync()


def _turn(source: Source, folder: Path, key: str, number: int, count: int) -> Turn:
    moved = throughput.rhino(source, folder / "throughput", 1, key)
    committed = commits.measure(source, folder / "commits", count, key)
    idle, beside, busy = committed.idle, committed.beside_bulk, committed.busy
    latencies = (idle.p50_ms, idle.p99_ms, beside.p50_ms, beside.p99_ms, busy.p50_ms, busy.p99_ms)
    return Turn(
        ENCRYPTED if key else PLAIN,
        number,
        moved.mb_per_s,
        moved.cpu_s_per_gb_hop,
        *latencies,
        committed.cpu_us_per_commit,
    )


def summarise(turns: Sequence[Turn]) -> dict[str, float]:
    """Medians over the rounds: of the two ways, of their ratios, and of the differences of latencies."""
    plain, secure = ([turn for turn in turns if turn.way == way] for way in WAYS)
    pairs = [(a, b) for a in secure for b in plain if a.round == b.round]
    found: dict[str, float] = {}
    for figure in ("mb_per_s", "cpu_s_per_gb", "cpu_us_per_commit"):
        for name, some in ((PLAIN, plain), (ENCRYPTED, secure)):
            found[f"{figure}_{name}"] = statistics.median(getattr(turn, figure) for turn in some)
        found[f"{figure}_ratio"] = statistics.median(getattr(a, figure) / getattr(b, figure) for a, b in pairs)
    for figure in LATENCIES:
        for name, some in ((PLAIN, plain), (ENCRYPTED, secure)):
            found[f"{figure}_{name}"] = statistics.median(getattr(turn, figure) for turn in some)
        found[f"{figure}_more"] = statistics.median(getattr(a, figure) - getattr(b, figure) for a, b in pairs)
    return found
