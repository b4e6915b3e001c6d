"""Figures of a run, each provider's beside its peer's."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from rich.table import Table

from benchmarks.overhead.subject import Batch, Subject


@dataclass(frozen=True, slots=True)
class Row:
    """One load under one provider. `growth`: median duration of the last third of the batches over the median of the
    first third.

    `ratio_p50`: the median over the stock provider's in the same session; `growth_ratio`: the same of growth.
    `ratio_rhino`: the median over that of the subject "rhino", which has no archive. Processor, disk, network and
    archive are per million rows; `cpu_ratio`: Spark's and Rhino's processor time together over Spark's alone with the
    stock provider (the daemons idle beside the stock provider). Peaks are of the session so far, and common to all.
    """

    setting: str
    load: str
    provider: str
    batches: int
    p50_ms: float
    p99_ms: float
    ratio_p50: float
    ratio_rhino: float
    growth: float
    growth_ratio: float
    commit_p50_ms: float
    commit_p99_ms: float
    rhino_commit_p50_ms: float
    rows_per_s: float
    spark_cpu_s: float
    daemons_cpu_s: float
    cpu_ratio: float
    disk_mb: float
    network_mb: float
    archive_mb: float
    state_rows: int
    peak_executor_mb: float
    peak_sidecar_mb: float


def rows_of(setting: str, subjects: Sequence[Subject], executor_bytes: int, sidecar_bytes: int) -> list[Row]:
    """`subjects`: stock, rhino, and perhaps others. All are compared with the first two."""
    return [_row(setting, subject, subjects, executor_bytes / 1e6, sidecar_bytes / 1e6) for subject in subjects]


def _row(setting: str, subject: Subject, subjects: Sequence[Subject], executor_mb: float, sidecar_mb: float) -> Row:
    stock, rhino = subjects[0], subjects[min(1, len(subjects) - 1)]
    durations = [batch.duration_ms for batch in subject.batches]
    commits = [batch.commit_ms for batch in subject.batches]
    millions = subject.rows / 1e6
    return Row(
        setting=setting,
        load=subject.load,
        provider=subject.name,
        batches=len(subject.batches),
        p50_ms=statistics.median(durations),
        p99_ms=_percentile(durations, 0.99),
        ratio_p50=statistics.median(durations) / statistics.median(b.duration_ms for b in stock.batches),
        ratio_rhino=statistics.median(durations) / statistics.median(b.duration_ms for b in rhino.batches),
        growth=growth(subject.batches),
        growth_ratio=growth(subject.batches) / growth(stock.batches),
        commit_p50_ms=statistics.median(commits),
        commit_p99_ms=_percentile(commits, 0.99),
        rhino_commit_p50_ms=statistics.median(b.rhino_commit_ms for b in subject.batches),
        rows_per_s=sum(b.rows for b in subject.batches) / (sum(durations) / 1000),
        spark_cpu_s=sum(used.spark_cpu_s for used in subject.used) / millions,
        daemons_cpu_s=sum(used.daemons_cpu_s for used in subject.used) / millions,
        cpu_ratio=_cpu_ratio(subject, stock),
        disk_mb=sum(used.disk_bytes for used in subject.used) / 1e6 / millions,
        network_mb=sum(used.network_bytes for used in subject.used) / 1e6 / millions,
        archive_mb=sum(used.archive_bytes for used in subject.used) / 1e6 / millions,
        state_rows=subject.batches[-1].state_rows,
        peak_executor_mb=executor_mb,
        peak_sidecar_mb=sidecar_mb,
    )


def _cpu_ratio(subject: Subject, stock: Subject) -> float:
    """Per row."""
    if subject is stock:
        return 1.0
    both = sum(used.spark_cpu_s + used.daemons_cpu_s for used in subject.used) / subject.rows
    return both / (sum(used.spark_cpu_s for used in stock.used) / stock.rows)


def growth(batches: Sequence[Batch]) -> float:
    """How much longer the last third of the batches takes than the first."""
    third = max(len(batches) // 3, 1)
    first, last = batches[:third], batches[-third:]
    return statistics.median(b.duration_ms for b in last) / statistics.median(b.duration_ms for b in first)


def _percentile(values: Sequence[float], share: float) -> float:
    return sorted(values)[min(int(share * len(values)), len(values) - 1)]


def table(rows: Sequence[Row]) -> Table:
    columns = (
        *("setting", "load", "provider", "p50 ms", "p99 ms", "x stock", "x rhino", "growth", "x stock"),
        *("commit p50 ms", "p99", "until copies", "rows/s", "CPU s/M Spark", "daemons", "x stock"),
        *("disk MB/M", "network", "archive", "state rows"),
    )
    shown = Table(*columns)
    for r in rows:
        shown.add_row(
            *(r.setting, r.load, r.provider, f"{r.p50_ms:.0f}", f"{r.p99_ms:.0f}", f"{r.ratio_p50:.2f}"),
            *(f"{r.ratio_rhino:.2f}", f"{r.growth:.2f}", f"{r.growth_ratio:.2f}"),
            *(f"{r.commit_p50_ms:.0f}", f"{r.commit_p99_ms:.0f}", f"{r.rhino_commit_p50_ms:.0f}"),
            *(f"{r.rows_per_s:,.0f}", f"{r.spark_cpu_s:.2f}", f"{r.daemons_cpu_s:.2f}", f"{r.cpu_ratio:.2f}"),
            *(f"{r.disk_mb:.0f}", f"{r.network_mb:.0f}", f"{r.archive_mb:.0f}", f"{r.state_rows:,}"),
        )
    return shown
