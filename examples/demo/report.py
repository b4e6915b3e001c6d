"""The demo's report: computes `report.json`, a table and the list of problems from observations."""

from __future__ import annotations

import dataclasses
import json
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.filesize import decimal
from rich.table import Table

from rhino import Handover
from rhino.testing.describe import CommitFacts, PrepareFacts, SidecarFacts
from rhino.testing.query_watch import Batch
from workloads.nexmark.output import Verdict

WARM_UP_BATCHES = 6  # class loading, compilation, first placement: not part of the steady median


@dataclass(frozen=True, slots=True)
class Kill:
    """Observations around the kill of a worker. Times are wall clock in milliseconds since the epoch."""

    worker_id: str
    at_ms: int
    detected_ms: int  # the driver's scheduler removed the worker's executor
    next_batch_ms: int  # the commit log has the first batch that ran without the worker
    moved_partitions: frozenset[int]  # partitions of the virtual nodes that the worker ran
    whole_before: frozenset[tuple[str, int]]  # (worker id, partition) of every whole copy before the kill


@dataclass(frozen=True, slots=True)
class HandoverFigures:
    virtual_nodes: list[str]
    epoch: int
    duration_s: float
    switch_batch_ms: int
    bytes_moved: int


@dataclass(frozen=True, slots=True)
class RecoveryFigures:
    detected_s: float
    next_batch_s: float
    prepare_ms_p50: float
    prepare_ms_max: float
    source: str


@dataclass(frozen=True, slots=True)
class Report:
    """The contents of `report.json`."""

    events: int
    rows: int
    missing: int
    extra: int
    steady_batch_ms_p50: float
    handover: HandoverFigures
    recovery: RecoveryFigures
    commit_ms_p50: float
    commit_ms_p99: float
    replicated_bytes: int
    sidecar_rss_mb_max: float

    def write(self, path: Path) -> None:
        path.write_text(json.dumps(dataclasses.asdict(self), indent=2) + "\n")


@dataclass(frozen=True, slots=True)
class Observations:
    """The input of the report. `sidecars`: one description of each; of the killed one from just before the kill."""

    events: int
    verdict: Verdict
    batches: Sequence[Batch]
    handover: Handover
    kill: Kill
    recovery_prepares: Sequence[PrepareFacts]
    sidecars: Sequence[SidecarFacts]


def recovery_prepares(kill: Kill, sidecars: Sequence[SidecarFacts]) -> list[PrepareFacts]:
    """Returns the Prepare records of the survivors between the kill and the next batch."""
    return [
        prepare
        for sidecar in sidecars
        for prepare in sidecar.prepares
        if sidecar.worker_id != kill.worker_id and kill.at_ms <= prepare.finished_ms <= kill.next_batch_ms
    ]


def _partitions(prepare: PrepareFacts) -> set[int]:
    return {v.store.partition for v in prepare.versions}


def _of_moved(kill: Kill, prepares: Sequence[PrepareFacts]) -> list[PrepareFacts]:
    return [p for p in prepares if p.state == "ready" and _partitions(p) & kill.moved_partitions]


def percentile(values: Sequence[float], share: float) -> float:
    """Percentile by nearest rank; 0.0 for an empty list."""
    ranked = sorted(values)
    return ranked[min(int(share * len(ranked)), len(ranked) - 1)] if ranked else 0.0


def steady(batches: Sequence[Batch], handover: Handover, kill: Kill) -> list[Batch]:
    """Returns the batches after the warm-up that overlap neither the handover nor the recovery."""
    busy = ((handover.started_ms, handover.finished_ms), (kill.at_ms, kill.next_batch_ms))
    return [
        b
        for b in batches
        if b.batch_id >= WARM_UP_BATCHES and all(b.ended_ms < begin or b.started_ms > end for begin, end in busy)
    ]


def _handover_figures(seen: Observations) -> HandoverFigures:
    switch = [b.duration_ms for b in seen.batches if b.batch_id == seen.handover.confirmed_batch_id]
    return HandoverFigures(
        virtual_nodes=[m.virtual_node for m in seen.handover.plan.moves],
        epoch=seen.handover.configuration_epoch,
        duration_s=round(seen.handover.duration_s, 3),
        switch_batch_ms=switch[0] if switch else 0,
        bytes_moved=seen.handover.bytes_moved,
    )


def _recovery_figures(kill: Kill, prepares: Sequence[PrepareFacts]) -> RecoveryFigures:
    moved = _of_moved(kill, prepares)
    durations = [p.duration_ms for p in moved]
    return RecoveryFigures(
        detected_s=round((kill.detected_ms - kill.at_ms) / 1000, 3),
        next_batch_s=round((kill.next_batch_ms - kill.at_ms) / 1000, 3),
        prepare_ms_p50=round(percentile(durations, 0.5), 2),
        prepare_ms_max=round(max(durations, default=0.0), 2),
        source="+".join(sorted({p.source for p in moved})) or "none",
    )


def _waited_for(commits: Sequence[CommitFacts]) -> list[float]:
    """Returns the durations of the commits for which a task waits. Snapshots are committed in the background."""
    return [c.duration_ms for c in commits if c.changelog]


def make_report(seen: Observations) -> Report:
    calm = [b.duration_ms for b in steady(seen.batches, seen.handover, seen.kill)]
    commits = _waited_for([c for s in seen.sidecars for c in s.commits])
    return Report(
        events=seen.events,
        rows=seen.verdict.rows,
        missing=seen.verdict.missing,
        extra=seen.verdict.extra,
        steady_batch_ms_p50=round(statistics.median(calm), 1) if calm else 0.0,
        handover=_handover_figures(seen),
        recovery=_recovery_figures(seen.kill, seen.recovery_prepares),
        commit_ms_p50=round(percentile(commits, 0.5), 2),
        commit_ms_p99=round(percentile(commits, 0.99), 2),
        replicated_bytes=sum(s.replicated_bytes_in for s in seen.sidecars),
        sidecar_rss_mb_max=round(max(s.resident_bytes_max for s in seen.sidecars) / 2**20, 1),
    )


def problems(seen: Observations) -> list[str]:
    """Returns violations: missing or invented rows, and state read remotely although a whole replica was local."""
    found = []
    if not seen.verdict.equal:
        found.append(f"the output has {seen.verdict.missing} missing and {seen.verdict.extra} extra rows")
    if not seen.verdict.rows:
        found.append("the output has no rows")
    prepared: set[int] = set()
    for prepare in seen.recovery_prepares:
        partitions = _partitions(prepare)
        prepared |= partitions if prepare.state == "ready" else set()
        had = any((prepare.worker_id, p) in seen.kill.whole_before for p in partitions)
        from_afar = not prepare.held_before or prepare.source == "remote" or prepare.fetched_bytes > 0
        if had and from_afar:
            found.append(
                f"{prepare.worker_id} had a whole replica of partition {sorted(partitions)} but read "
                f"{prepare.fetched_bytes} bytes from elsewhere ({prepare.source}, {prepare.state})"
            )
    if unseen := sorted(seen.kill.moved_partitions - prepared):
        found.append(f"no worker has prepared partitions {unseen} after {seen.kill.worker_id} was killed")
    if not seen.kill.moved_partitions:
        found.append(f"{seen.kill.worker_id} ran no virtual node when it was killed")
    return found


def show(report: Report, console: Console) -> None:
    """Prints the report as a table."""
    h, r = report.handover, report.recovery
    table = Table(title="NEXMark NBQ8 on replicated state", title_justify="left", show_header=False, show_edge=False)
    table.add_column(style="bold")
    table.add_column()
    rows_style = "green" if report.missing == report.extra == 0 else "red"
    table.add_row("events, output rows", f"{report.events:,}, {report.rows:,}")
    table.add_row("against DuckDB", f"[{rows_style}]{report.missing} missing, {report.extra} extra[/]")
    table.add_row("steady batch, median", f"{report.steady_batch_ms_p50:.0f} ms")
    table.add_row("handover", f"{', '.join(h.virtual_nodes)} in {h.duration_s:.1f} s, {decimal(h.bytes_moved)} moved")
    table.add_row("  batch of the switch", f"{h.switch_batch_ms} ms (configuration epoch {h.epoch})")
    table.add_row("lost worker", f"seen after {r.detected_s:.2f} s, next batch done after {r.next_batch_s:.1f} s")
    table.add_row("  state made ready", f"{r.prepare_ms_p50:.1f} ms median, {r.prepare_ms_max:.1f} ms most: {r.source}")
    table.add_row("commit until replicated", f"{report.commit_ms_p50:.1f} ms median, {report.commit_ms_p99:.1f} ms p99")
    table.add_row("replicated", decimal(report.replicated_bytes))
    table.add_row("largest sidecar", f"{report.sidecar_rss_mb_max:.0f} MiB")
    console.print(table)
