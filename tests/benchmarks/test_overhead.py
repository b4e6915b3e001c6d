"""The figures of benchmarks.overhead."""

from __future__ import annotations

from pathlib import Path

from benchmarks.overhead.report import growth, rows_of
from benchmarks.overhead.resources import Reading
from benchmarks.overhead.subject import Batch, Subject


def subject(name: str, durations: list[int]) -> Subject:
    batches = [Batch(i, ms, rows=100, commit_ms=4, rhino_commit_ms=3, state_rows=i) for i, ms in enumerate(durations)]
    used = [Reading(1.0, 0.5, disk_bytes=6_000_000, network_bytes=3_000_000)] * 2
    return Subject(name, "count", 100, Path("/unused"), batches=batches, used=used, rows=100 * len(durations))


def test_each_provider_is_compared_with_the_first() -> None:
    stock, rhino = rows_of("r1", [subject("stock", [100] * 9), subject("rhino", [105] * 6 + [210] * 3)], 10**9, 10**8)
    assert (stock.ratio_p50, stock.growth_ratio) == (1.0, 1.0)
    assert (rhino.p50_ms, rhino.p99_ms, rhino.ratio_p50) == (105, 210, 1.05)
    assert (rhino.growth, rhino.growth_ratio) == (2.0, 2.0)
    assert stock.rows_per_s == 1000.0
    assert (stock.peak_executor_mb, stock.peak_sidecar_mb) == (1000.0, 100.0)


def test_use_is_per_million_rows_of_all_batches() -> None:
    row = rows_of("r1", [subject("stock", [100] * 10)], 1, 1)[0]
    assert (row.spark_cpu_s, row.daemons_cpu_s) == (2000.0, 1000.0)  # 2 s and 1 s for 1000 rows
    assert (row.disk_mb, row.network_mb) == (12_000.0, 6_000.0)


def test_processor_time_of_spark_and_daemons_is_compared_with_sparks_alone() -> None:
    stock, rhino = rows_of("r1", [subject("stock", [100] * 10), subject("rhino", [100] * 10)], 1, 1)
    assert (stock.cpu_ratio, rhino.cpu_ratio) == (1.0, 1.5)


def test_growth_compares_the_ends() -> None:
    durations = [10, 10, 10, 500, 500, 500, 20, 20, 20]
    assert growth(subject("stock", durations).batches) == 2.0
