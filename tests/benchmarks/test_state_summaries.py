"""Summaries of the benchmarks on state: medians per size and subject, ratios within a round."""

from __future__ import annotations

from dataclasses import replace

from benchmarks.events import Event
from benchmarks.handover import summary as handover_summary
from benchmarks.handover.move import Moved
from benchmarks.recovery import summary as recovery_summary
from benchmarks.recovery.loss import Recovery
from rhino.testing.query_watch import Batch

RHINO = Recovery(
    subject="rhino",
    state_bytes=1_000_000_000,
    moved_partitions=2,
    steady_batch_ms=600.0,
    lease_ended=1100.0,
    detected=100.0,
    scheduled=300.0,
    prepared=900.0,
    fetch_slowest=50.0,
    open_slowest=60.0,
    load_slowest=100.0,
    replayed=5,
    loaded=1200.0,
    next_batch=1500.0,
    prepare_slowest=9.0,
    prepare_p50=1.0,
    prepare_p99=9.0,
    sources="replica",
    copied_bytes=300_000_000,
    network_bytes=0,
    reloads=0,
    disk_reads=3,
)
STOCK = replace(RHINO, subject="stock", next_batch=3000.0, prepare_p50=0.0, sources="")
MOVED = Moved(
    subject="assisted",
    state_bytes=250_000_000,
    partitions=1,
    steps=1,
    steady_batch=600.0,
    during_batch=0.0,
    switch_batch=900,
    switch_median=900.0,
    after_batch=610.0,
    total=2000.0,
    scheduled=100.0,
    prepared=200.0,
    loaded=300.0,
    next_batch=800.0,
    bytes_before_switch=0,
    bytes_at_switch=0,
    prepare_slowest=5.0,
    fetch_slowest=50.0,
    open_slowest=30.0,
    load_slowest=40.0,
    replayed=5,
    batches=(Batch(7, 1000, 600), Batch(8, 1600, 900), Batch(9, 2500, 620)),
    events=(Event("asked", 1650.0),),
)


def test_recoveries_are_compared_within_their_round() -> None:
    slower = [replace(RHINO, next_batch=2000.0), replace(STOCK, next_batch=6000.0)]
    behind = replace(STOCK, subject="stock-cold", next_batch=9000.0)
    rows = recovery_summary.summarise([RHINO, STOCK, *slower, behind])
    assert [(row["subject"], row["runs"], row["next_batch"], row["ratio"]) for row in rows] == [
        ("rhino", 2, 1750.0, 1.0),
        ("stock", 2, 4500.0, 2.5),
        ("stock-cold", 1, 9000.0, None),
    ]
    assert recovery_summary.table(rows).row_count == 3


def test_moves_are_summarised_by_size_and_subject() -> None:
    other = replace(MOVED, move=2, switch_batch=1800, switch_median=1200.0)
    rows = handover_summary.summarise([MOVED, other, replace(MOVED, state_bytes=1_000_000_000)])
    figures = ("state_bytes", "moves", "added_pause", "switch_ratio", "switch_ratio_max", "longest_ratio")
    assert [tuple(row[name] for name in figures) for row in rows] == [
        (250_000_000, 2, 450.0, 1.75, 2.0, 1.5),
        (1_000_000_000, 1, 300.0, 1.5, 1.5, 1.5),
    ]
    assert handover_summary.table(rows).row_count == handover_summary.phases(rows).row_count == 2
