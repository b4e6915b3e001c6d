"""Medians of each subject, its ratios to plain TCP in the same round, and whether it meets the bar."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.transports.subjects import BASELINE, parse

SPEED_MIN = 0.80  # of plain TCP
CPU_MAX = 1.60  # times plain TCP, sender and receiver together
P99_MAX_MS = 1.0  # more than plain TCP


@dataclass(frozen=True, slots=True)
class Result:
    """One subject in one round. `load`: "idle", or "busy" beside burning processes. Latencies in milliseconds."""

    subject: str
    load: str
    round: int
    mb_per_s: float
    sender_cpu_s_per_gb: float
    receiver_cpu_s_per_gb: float
    idle_p50_ms: float
    idle_p99_ms: float
    beside_p50_ms: float
    beside_p99_ms: float
    beside_mb_per_s: float

    @property
    def cpu_s_per_gb(self) -> float:
        return self.sender_cpu_s_per_gb + self.receiver_cpu_s_per_gb


Row = dict[str, float | str | bool | None]
FIGURES = (
    "mb_per_s",
    "sender_cpu_s_per_gb",
    "receiver_cpu_s_per_gb",
    "cpu_s_per_gb",
    "idle_p50_ms",
    "idle_p99_ms",
    "beside_p50_ms",
    "beside_p99_ms",
    "beside_mb_per_s",
)


def summarise(results: Sequence[Result]) -> list[Row]:
    """A row for each load and subject, in the order of the first round."""
    rows: list[Row] = []
    for load, subject in dict.fromkeys((result.load, result.subject) for result in results):
        mine, plain = (
            [result for result in results if (result.load, result.subject) == (load, name)]
            for name in (subject, BASELINE)
        )
        row: Row = {"load": load, "subject": subject}
        row |= {name: statistics.median(getattr(result, name) for result in mine) for name in FIGURES}
        if plain:
            row |= _compared(mine, plain)
        rows.append(row)
    return rows


def _compared(mine: Sequence[Result], plain: Sequence[Result]) -> Row:
    """Medians of the rounds' own ratios and differences."""
    pairs = list(zip(mine, plain, strict=False))  # an interrupted run lacks the last results
    speed = statistics.median(a.mb_per_s / b.mb_per_s for a, b in pairs)
    cpu = statistics.median(a.cpu_s_per_gb / b.cpu_s_per_gb for a, b in pairs)
    idle = statistics.median(a.idle_p99_ms - b.idle_p99_ms for a, b in pairs)
    beside = statistics.median(a.beside_p99_ms - b.beside_p99_ms for a, b in pairs)
    meets = speed >= SPEED_MIN and cpu <= CPU_MAX and max(idle, beside) <= P99_MAX_MS
    return {
        "speed_ratio": speed,
        "cpu_ratio": cpu,
        "idle_p99_more_ms": idle,
        "beside_p99_more_ms": beside,
        "meets_bar": meets if parse(mine[0].subject).encrypted else None,
    }
