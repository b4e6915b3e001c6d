"""One planned move of a running query's state, and its effect on the batches."""

from __future__ import annotations

import statistics
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from benchmarks.events import Event
from benchmarks.loads import StateLoad, loads_of, moved_loads, newest_loads
from benchmarks.page_cache import bring_in
from benchmarks.stateful import QUERY_NAME, SNAPSHOT_BATCHES, Running
from rhino import HandoverClient, MoveKind, Phase, ScaleIn, Strategy
from rhino.client.handover_client import Handover
from rhino.client.overview import JobView, fetch_overview
from rhino.testing.choices import handover_choice
from rhino.testing.query_watch import Batch, RunError

AFTER_BATCHES = 8
DEADLINE_S = 120.0  # of each step
SCALED_IN = 2  # workers that a scale-in empties


@dataclass(frozen=True, slots=True)
class Moved:
    """Durations in milliseconds. A batch is of the move when it ran while the move did.

    `scheduled` to `next_batch` count from the (first) marker; without Rhino from the request.
    """

    subject: str
    state_bytes: int
    partitions: int
    steps: int
    steady_batch: float  # median of batches before and after
    during_batch: float  # median of the batches before the switch that ran while bytes were moved; 0: there was none
    switch_batch: int  # the longest of those in which a moved partition was loaded
    switch_median: float  # of all of these
    after_batch: float  # median after
    total: float  # from the request until the moved partitions run elsewhere
    scheduled: float  # the first of them is loaded elsewhere
    prepared: float  # all files of the last load are there
    loaded: float  # the last load is done
    next_batch: float  # the batch of the last load is done
    bytes_before_switch: int  # moved while the query went on
    bytes_at_switch: int  # that the switching batch waited for: over the network, or copied from the checkpoint
    prepare_slowest: float
    fetch_slowest: float  # of a moved partition: until its files were there, Prepare included
    open_slowest: float  # RocksDB opens them
    load_slowest: float  # open and replay
    replayed: int  # changelogs, in the load with most
    move: int = 1  # which one of its cluster
    batches: Sequence[Batch] = ()  # from those before on
    events: Sequence[Event] = ()  # the request, and the marker of each step

    @property
    def added_pause(self) -> float:
        return self.switch_median - self.steady_batch

    @property
    def longest_ratio(self) -> float:
        """The time of the longest batch from the request on over the time of a steady one."""
        asked_ms = self.events[0].started_ms
        return max(b.duration_ms for b in self.batches if b.ended_ms > asked_ms) / self.steady_batch

    @property
    def ratio(self) -> float:
        """The time of a switching batch over the time of a steady one."""
        return self.switch_median / self.steady_batch


def hand_over(run: Running, subject: str, kind: MoveKind, strategy: Strategy) -> Moved:
    """Half of a worker's virtual nodes, by Rhino. RunError when it is not confirmed or of another kind."""
    job = _placed(run)
    choice = handover_choice(job)
    before = newest_loads(loads_of(run.cluster.workers))
    bring_in(run.data_files(map(_partition, choice.virtual_nodes)))
    run.wait_between_snapshots()
    started_ms, handover = _confirmed(
        run,
        lambda c: c.start(job.job, choice.virtual_nodes, choice.target, strategy=strategy, deadline_s=DEADLINE_S),
    )
    if wrong := {move.kind for move in handover.plan.moves} - {kind}:
        raise RunError(f"the handover was planned as {wrong.pop().value}, not {kind.value}")
    return _moved(run, subject, _of(handover, before), handover.started_ms or started_ms, handover)


def scale_in(run: Running, subject: str, strategy: Strategy) -> Moved:
    """Everything off the two workers with most virtual nodes, to the others, in the steps of `strategy`."""
    job = _placed(run)
    counts = Counter(node.desired_worker for node in job.virtual_nodes)
    leaving = tuple(sorted(sorted(counts), key=lambda w: -counts[w])[:SCALED_IN])
    before = newest_loads(loads_of(run.cluster.workers))
    bring_in(run.data_files(_partition(n.virtual_node) for n in job.virtual_nodes if n.desired_worker in leaving))
    run.wait_between_snapshots()
    started_ms, handover = _confirmed(
        run, lambda c: c.start(job.job, intent=ScaleIn(leaving), strategy=strategy, deadline_s=DEADLINE_S)
    )
    return _moved(run, subject, _of(handover, before), handover.started_ms or started_ms, handover)


def _partition(virtual_node: str) -> int:
    return int(virtual_node.split("/")[1])


def _of(handover: Handover, loads: Mapping[int, StateLoad]) -> dict[int, StateLoad]:
    moved = {_partition(move.virtual_node) for move in handover.plan.moves}
    return {partition: load for partition, load in loads.items() if partition in moved}


def _confirmed(run: Running, start: Callable[[HandoverClient], Handover]) -> tuple[float, Handover]:
    """Wall clock in milliseconds before, and the handover once it has ended. RunError unless it is confirmed."""
    run.doing.what = "the handover"
    with HandoverClient(run.cluster.manager) as client, ThreadPoolExecutor(1) as pool:
        started_ms = time.time() * 1000
        handover = start(client)
        timeout_s = DEADLINE_S * len(handover.steps) + 10
        ended = pool.submit(client.wait, handover.handover_id, timeout_s=timeout_s)
        run.watch.wait_for(ended.done)
        handover = ended.result()
    if handover.phase is not Phase.CONFIRMED:
        raise RunError(f"the handover ended {handover.phase.value}: {handover.reason}")
    return started_ms, handover


def decommission(run: Running, subject: str) -> Moved:
    """All partitions of an executor, by Spark's own decommissioning: it has no smaller planned move.

    Spark's worker starts another executor in its place. This may get partitions of the former: they have moved too, for
    it has nothing of their state.
    """
    loads = newest_loads(loads_of(run.cluster.workers))
    counts = Counter(load.worker_id for load in loads.values())
    origin = max(sorted(counts), key=lambda w: (counts[w], w))
    host = next(w.host for w in run.cluster.workers if w.worker_id == origin)
    before = {partition: load for partition, load in loads.items() if load.worker_id == origin}
    bring_in(run.data_files(before))
    run.wait_between_snapshots()
    run.doing.what = f"waiting for partitions {sorted(before)} to leave their executor on {host}"
    at_ms = time.time() * 1000
    _decommission(run, host)

    def away() -> bool:
        loads = moved_loads(loads_of(run.cluster.workers), before, at_ms)
        return {load.partition for load in loads} == before.keys()

    run.watch.wait_for(away)
    return _moved(run, subject, before, at_ms, None)


def _placed(run: Running) -> JobView:
    found: list[JobView] = []

    def placed() -> bool:
        job = next((j for j in fetch_overview(run.cluster.manager).jobs if j.name == QUERY_NAME and j.connected), None)
        if job and job.virtual_nodes and all(n.desired_worker and n.holders for n in job.virtual_nodes):
            found.append(job)
        return bool(found)

    run.watch.wait_for(placed)
    return found[0]


def _decommission(run: Running, host: str) -> None:
    """As a cluster manager does it before a node is taken away."""
    if not run.spark.sparkContext._jsc.sc().schedulerBackend().decommissionExecutorsOnHost(host):
        raise RunError(f"Spark did not decommission the executor on {host}")


def _moved(
    run: Running, subject: str, before: Mapping[int, StateLoad], at_ms: float, handover: Handover | None
) -> Moved:
    """`before`: loads before the move, by partition. `handover`: None without Rhino."""
    run.doing.what = "batches after the move"
    run.watch.wait_for_batch(run.watch.committed() + AFTER_BATCHES)
    batches = run.steady(10_000)
    loads = moved_loads(loads_of(run.cluster.workers), before, at_ms)
    switches = [b for b in batches if any(b.started_ms <= load.started_ms <= b.ended_ms for load in loads)]
    if not switches:
        raise RunError(f"no batch loaded one of partitions {sorted(before)} elsewhere than before")
    end_ms = handover.finished_ms if handover else max(b.ended_ms for b in switches)
    markers = [float(step.marked_ms) for step in handover.steps] if handover else []
    marked_ms = min(markers, default=at_ms)
    calm = [b for b in batches if b.ended_ms <= at_ms][-SNAPSHOT_BATCHES:]
    after = [b for b in batches if b.started_ms > end_ms]
    during = [b for b in batches if b.ended_ms > at_ms and b.ended_ms < switches[0].started_ms + 1]
    return Moved(
        subject=subject,
        state_bytes=run.load.state_bytes,
        partitions=len({load.partition for load in loads}),
        steps=len(handover.steps) if handover else 1,
        steady_batch=_median([*calm, *after]),
        during_batch=_median(during),
        switch_batch=max(b.duration_ms for b in switches),
        switch_median=_median(switches),
        after_batch=_median(after),
        total=end_ms - at_ms,
        scheduled=min(load.started_ms for load in loads) - marked_ms,
        prepared=max(load.copied_ms for load in loads) - marked_ms,
        loaded=max(load.ended_ms for load in loads) - marked_ms,
        next_batch=max(b.ended_ms for b in switches) - marked_ms,
        bytes_before_switch=handover.bytes_moved if handover else 0,
        bytes_at_switch=_waited_bytes(run, loads),
        prepare_slowest=max(load.prepare_ms for load in loads),
        fetch_slowest=max(load.fetch_ms for load in loads),
        open_slowest=max(load.opened_ms - load.copied_ms for load in loads),
        load_slowest=max(load.open_ms for load in loads),
        replayed=max(load.replayed for load in loads),
        batches=[*calm, *(b for b in batches if b.ended_ms > at_ms)],
        events=[Event("request", at_ms), *(Event("marker", marked) for marked in markers)],
    )


def _waited_bytes(run: Running, loads: Sequence[StateLoad]) -> int:
    return sum(load.fetched_bytes if run.cluster.manager else load.copied_bytes for load in loads)


def _median(batches: Sequence[Batch]) -> float:
    return statistics.median(b.duration_ms for b in batches) if batches else 0.0
