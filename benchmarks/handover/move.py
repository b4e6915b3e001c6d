"""One planned move of a running query's state, and what its batches felt of it."""

from __future__ import annotations

import statistics
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from benchmarks.loads import StateLoad, loads_of, places
from benchmarks.stateful import QUERY_NAME, Running
from deploy.demo.plan import handover_choice
from deploy.demo.watch import Batch, DemoError
from rhino.rpc.overview import JobView, fetch_overview
from spark_connector import HandoverClient, MoveKind, Phase

STEADY_BATCHES = 12
AFTER_BATCHES = 8
DEADLINE_S = 120.0


@dataclass(frozen=True, slots=True)
class Moved:
    """Durations in milliseconds. A batch is of the move when it ran while the move did."""

    subject: str
    state_bytes: int
    partitions: int
    steady_batch: float  # median before
    during_batch: float  # median of the batches before the switch that ran while bytes were moved; 0: there was none
    switch_batch: int  # the longest of those in which a moved partition was loaded
    after_batch: float  # median after
    total: float  # from the request until the moved partitions run elsewhere
    bytes_before_switch: int  # moved while the query went on
    bytes_at_switch: int  # that the switching batch waited for: over the network, or copied from the checkpoint
    prepare_slowest: float
    fetch_slowest: float  # of a moved partition: until its files were there, Prepare included
    load_slowest: float  # open and replay

    @property
    def added_pause(self) -> float:
        return self.switch_batch - self.steady_batch


def hand_over(run: Running, subject: str, kind: MoveKind) -> Moved:
    """Half of a worker's virtual nodes, by Rhino. DemoError when it is not confirmed or of another kind."""
    job = _placed(run)
    choice = handover_choice(job)
    with HandoverClient(run.cluster.manager) as client, ThreadPoolExecutor(1) as pool:
        started_ms = time.time() * 1000
        handover = client.start(job.job, choice.virtual_nodes, choice.target, deadline_s=DEADLINE_S)
        ended = pool.submit(client.wait, handover.handover_id, timeout_s=DEADLINE_S + 10)
        run.watch.wait_for(ended.done)
        handover = ended.result()
    if handover.phase is not Phase.CONFIRMED:
        raise DemoError(f"the handover ended {handover.phase.value}: {handover.reason}")
    if wrong := {move.kind for move in handover.plan.moves} - {kind}:
        raise DemoError(f"the handover was planned as {wrong.pop().value}, not {kind.value}")
    partitions = {int(node.split("/")[1]) for node in choice.virtual_nodes}
    at_ms = handover.started_ms or started_ms
    return _moved(run, subject, partitions, choice.origin, at_ms, handover.finished_ms, handover.bytes_moved)


def decommission(run: Running, subject: str) -> Moved:
    """All partitions of an executor, by Spark's own decommissioning: it has no smaller planned move."""
    before = places(loads_of(run.cluster.workers))
    origin = max(sorted(set(before.values())), key=lambda w: (Counter(before.values())[w], w))
    host = next(w.host for w in run.cluster.workers if w.worker_id == origin)
    partitions = {p for p, worker in before.items() if worker == origin}
    run.watch.wait_for_batch(run.watch.committed() + 1)
    at_ms = time.time() * 1000
    _decommission(run, host)

    def away() -> bool:
        now = places(loads_of(run.cluster.workers))
        return all(now[p] != origin for p in partitions)

    run.watch.wait_for(away)
    return _moved(run, subject, partitions, origin, at_ms, 0, 0)


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
        raise DemoError(f"Spark did not decommission the executor on {host}")


def _moved(
    run: Running, subject: str, partitions: set[int], origin: str, at_ms: float, finished_ms: float, moved_bytes: int
) -> Moved:
    run.watch.wait_for_batch(run.watch.committed() + AFTER_BATCHES)
    batches = run.steady(10_000)
    loads = [
        load
        for load in loads_of(run.cluster.workers)
        if load.real and load.partition in partitions and load.worker_id != origin and load.ended_ms > at_ms
    ]
    switches = [b for b in batches if any(b.started_ms <= load.started_ms <= b.ended_ms for load in loads)]
    if not switches:
        raise DemoError(f"no batch loaded partitions {sorted(partitions)} elsewhere than on {origin}")
    end_ms = finished_ms or max(b.ended_ms for b in switches)
    during = [b for b in batches if b.ended_ms > at_ms and b.ended_ms < switches[0].started_ms + 1]
    return Moved(
        subject=subject,
        state_bytes=run.load.state_bytes,
        partitions=len(partitions),
        steady_batch=_median([b for b in batches if b.ended_ms <= at_ms][-STEADY_BATCHES:]),
        during_batch=_median(during),
        switch_batch=max(b.duration_ms for b in switches),
        after_batch=_median([b for b in batches if b.started_ms > end_ms]),
        total=end_ms - at_ms,
        bytes_before_switch=moved_bytes,
        bytes_at_switch=_waited_bytes(run, loads),
        prepare_slowest=max(load.prepare_ms for load in loads),
        fetch_slowest=max(load.fetch_ms for load in loads),
        load_slowest=max(load.open_ms for load in loads),
    )


def _waited_bytes(run: Running, loads: Sequence[StateLoad]) -> int:
    return sum(load.fetched_bytes if run.cluster.manager else load.copied_bytes for load in loads)


def _median(batches: Sequence[Batch]) -> float:
    return statistics.median(b.duration_ms for b in batches) if batches else 0.0
