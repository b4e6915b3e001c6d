"""One loss of a whole worker, by kill -9 or by its network, and when the query had recovered (Rhino, table 1)."""

from __future__ import annotations

import json
import statistics
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from benchmarks.events import Event
from benchmarks.loads import loads_of, places
from benchmarks.page_cache import bring_in, disk_reads, evict
from benchmarks.prepares import replica_prepares
from benchmarks.stateful import SNAPSHOT_BATCHES, Running
from examples.demo.report import percentile
from rhino.testing import LocalWorker
from rhino.testing.query_watch import Batch, RunError, driver_hosts

LEASE_BATCHES = 60  # a lease is 1 s
PREPARE_ROUNDS = 35  # of all six virtual nodes: over 200 calls


@dataclass(frozen=True, slots=True)
class Recovery:
    """Milliseconds after the loss, unless said otherwise. Loads are those of the lost worker's partitions."""

    subject: str
    state_bytes: int
    moved_partitions: int
    steady_batch_ms: float  # median duration before the loss
    lease_ended: float  # Rhino's manager counts the worker as lost; 0 without Rhino
    detected: float  # the driver has dropped the executor
    scheduled: float  # the first load begins on another worker
    prepared: float  # all files of the last load are there
    fetch_slowest: float  # duration: until all files were there
    open_slowest: float  # duration: RocksDB opens them
    load_slowest: float  # duration: open and replay
    replayed: int  # changelogs, in the load with most
    loaded: float  # the last load is done
    next_batch: float  # the batch after the loss is in the commit log
    prepare_slowest: float  # duration of Rhino's Prepare as the tasks felt it; 0 without Rhino
    prepare_p50: float  # of many calls for replicas before the loss
    prepare_p99: float
    sources: str  # of Prepare
    copied_bytes: int  # read from the checkpoint, or linked with Rhino
    network_bytes: int  # of them, what came over the network: from other workers, or from a remote checkpoint
    reloads: int  # loads of partitions that had not moved
    disk_reads: int  # by anybody, until the next batch was done: of state that the page cache had not
    batches: Sequence[Batch] = ()  # from those before the loss on
    events: Sequence[Event] = ()  # the loss


def lose_and_recover(run: Running, subject: str) -> Recovery:
    """Loses the worker with most partitions right after a batch is logged: the next one has to recover."""
    workers = run.cluster.workers
    run.doing.what = "calling Prepare for replicas"
    prepares = replica_prepares(run, PREPARE_ROUNDS) if run.place.rhino else [0.0]
    before = places(loads_of(workers))
    # Ties go to the last: the driver's address is that of the first.
    victim = max(sorted(set(before.values())), key=lambda w: (Counter(before.values())[w], w))
    index = next(i for i, w in enumerate(workers) if w.worker_id == victim)
    host = workers[index].host
    _set_page_cache(run, subject, [p for p, worker in before.items() if worker == victim], workers[index])
    run.wait_between_snapshots()
    newest = run.watch.committed()
    reads = disk_reads()
    run.doing.what = f"recovering from the loss of {victim}"
    at_ms = _lose(run, subject, index)
    detected_ms = next_ms = 0.0
    reads_after = 0

    def recovered() -> bool:
        nonlocal detected_ms, next_ms, reads_after
        if not next_ms and run.watch.committed() > newest:
            next_ms, reads_after = time.time() * 1000, disk_reads()
        if not detected_ms and host not in driver_hosts(run.spark):
            detected_ms = time.time() * 1000
        return bool(detected_ms and next_ms)

    run.watch.wait_for(recovered)
    run.watch.wait_for_batch(newest + 3)
    lease_ended = _lease_ended(run, victim, at_ms) if run.cluster.manager else 0.0
    after = [load for load in loads_of(workers) if load.real and load.ended_ms > at_ms and load.worker_id != victim]
    moved = [load for load in after if before[load.partition] == victim and load.started_ms < next_ms]
    batches = run.steady(SNAPSHOT_BATCHES + 4)
    steady = [b.duration_ms for b in batches if b.ended_ms < at_ms][-SNAPSHOT_BATCHES:]
    return Recovery(
        subject=subject,
        state_bytes=run.load.state_bytes,
        moved_partitions=len({load.partition for load in moved}),
        steady_batch_ms=statistics.median(steady),
        lease_ended=lease_ended,
        detected=detected_ms - at_ms,
        next_batch=next_ms - at_ms,
        reloads=sum(load.started_ms < next_ms for load in after) - len(moved),
        scheduled=min(load.started_ms for load in moved) - at_ms,
        prepared=max(load.copied_ms for load in moved) - at_ms,
        fetch_slowest=max(load.fetch_ms for load in moved),
        open_slowest=max(load.opened_ms - load.copied_ms for load in moved),
        load_slowest=max(load.open_ms for load in moved),
        replayed=max(load.replayed for load in moved),
        loaded=max(load.ended_ms for load in moved) - at_ms,
        prepare_slowest=max(load.prepare_ms for load in moved),
        prepare_p50=percentile(prepares, 0.5),
        prepare_p99=percentile(prepares, 0.99),
        sources="+".join(sorted({load.source for load in moved if load.source})),
        copied_bytes=sum(load.copied_bytes for load in moved),
        network_bytes=sum(load.fetched_bytes for load in moved),
        disk_reads=reads_after - reads,
        batches=batches,
        events=[Event("loss", at_ms)],
    )


def _set_page_cache(run: Running, subject: str, partitions: Sequence[int], victim: LocalWorker) -> None:
    """Files of the state to be loaded by the others: in the page cache, or with "-cold" on the disk only."""
    run.doing.what = "setting the page cache"
    files = [path for path in run.data_files(partitions) if not path.is_relative_to(victim.folder)]
    if subject.endswith("-cold"):
        evict(files)
    else:
        bring_in(files)


def _lose(run: Running, subject: str, index: int) -> float:
    """Wall clock in milliseconds before."""
    if not subject.endswith("-cut"):
        return run.cluster.kill_worker(index)
    if run.network is None:
        raise RunError(f"{subject}: only the link of a network namespace can be cut")
    return run.network.cut(index)


def _lease_ended(run: Running, worker_id: str, since_ms: float) -> float:
    """Milliseconds from `since_ms` until the manager calls the worker lost; three short batches may end before."""
    log = run.cluster.log_dir / "rhino-manager.log"
    last = run.watch.committed() + LEASE_BATCHES
    for committed in run.watch.polls():
        for line in log.read_text().splitlines():
            if f'"{worker_id}": "lost"' in line:
                at_ms = datetime.fromisoformat(json.loads(line)["time"]).timestamp() * 1000
                if at_ms >= since_ms:
                    return at_ms - since_ms
        if committed > last:
            break
    raise RunError(f"the manager has not counted {worker_id} as lost within {LEASE_BATCHES} batches")
