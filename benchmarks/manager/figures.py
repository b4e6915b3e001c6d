"""Measurements of a manager: in its steady time, during questions of people, and at a restart."""

from __future__ import annotations

import statistics
import time
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from benchmarks.manager.cluster import Cluster
from benchmarks.usage import Meter, peak_resident_bytes
from rhino.client.connection import manager_channel
from rhino_core.errors import UnavailableError
from rhino_pb import replication_pb2, replication_pb2_grpc

SCRAPE_S = 15.0  # between two readings of the metrics, as Prometheus does it
CALL_S = 600.0


@dataclass(frozen=True, slots=True)
class Figures:
    """One manager. `*_share`: processor time over wall time, of one core.

    `heartbeat_*`: seen by the probes. `clients_share`: of the busy clients. `first_live_s`, `all_live_s`: until all
    sidecars and drivers are connected, after the first start and after the restart, from the moment when the manager
    serves. `restart_s`: from the start of the process until it serves. `changed_groups`: with another epoch after the
    restart than before it; the restart alone must change none.
    """

    workers: int
    groups: int
    batches_a_minute: float
    cpu_share: float
    clients_share: float
    probes_share: float
    heartbeat_p50_ms: float
    heartbeat_p99_ms: float
    heartbeat_max_ms: float
    heartbeats_a_second: float
    news_a_second: float
    news_kb_a_second: float
    memory_mib: float
    journal_mib: float
    scrape_ms: float
    status_ms: float
    first_start_s: float
    first_live_s: float
    restart_s: float
    all_live_s: float
    changed_groups: int


def measure(cluster: Cluster, warm_s: float, seconds: float, profile: Path | None = None) -> Figures:
    """Runs one manager through its start, its steady time and a restart. `profile`: of all before the restart."""
    cluster.start_clients()
    first_start_s = cluster.start_manager(profile)
    _say(f"serves after {first_start_s:.1f} s")
    first_live_s = cluster.wait_all_live()
    _say(f"all sidecars are live after {first_live_s:.1f} s")
    time.sleep(warm_s)
    manager = cluster.manager
    assert manager is not None
    busy_pid, probes_pid = cluster.client_pids
    cluster.reset()
    scrapes: list[float] = []
    with Meter([manager.pid]) as own, Meter([busy_pid]) as theirs, Meter([probes_pid]) as probing:
        ends = time.monotonic() + seconds
        while (left_s := ends - time.monotonic()) > 0:
            scrapes.append(_took(lambda: urllib.request.urlopen(cluster.metrics, timeout=CALL_S).read()))
            time.sleep(max(0.0, min(SCRAPE_S, left_s) - scrapes[-1]))
        busy, probes = cluster.seen()
    memory = peak_resident_bytes(manager.pid)
    status_s = _took(lambda: _workers(cluster))
    before = _epochs(cluster)
    journal = sum(file.stat().st_size for file in cluster.journal.iterdir() if file.is_file())
    cluster.stop_manager(cleanly=profile is not None)
    restart_s = cluster.start_manager()
    _say(f"serves again after {restart_s:.1f} s")
    all_live_s = cluster.wait_all_live()
    _say(f"all sidecars are live again after {all_live_s:.1f} s")
    return Figures(
        workers=cluster.shape.workers,
        groups=cluster.shape.groups,
        batches_a_minute=busy.batches / own.used.wall_s * 60,
        cpu_share=own.used.cpu_s / own.used.wall_s,
        clients_share=theirs.used.cpu_s / theirs.used.wall_s,
        probes_share=probing.used.cpu_s / probing.used.wall_s,
        heartbeat_p50_ms=_percentile(probes.heartbeats_s, 50) * 1000,
        heartbeat_p99_ms=_percentile(probes.heartbeats_s, 99) * 1000,
        heartbeat_max_ms=max(probes.heartbeats_s) * 1000,
        heartbeats_a_second=(len(busy.heartbeats_s) + len(probes.heartbeats_s)) / own.used.wall_s,
        news_a_second=(busy.news + probes.news) / own.used.wall_s,
        news_kb_a_second=(busy.news_bytes + probes.news_bytes) / own.used.wall_s / 1000,
        memory_mib=memory / 2**20,
        journal_mib=journal / 2**20,
        scrape_ms=statistics.median(scrapes) * 1000,
        status_ms=status_s * 1000,
        first_start_s=first_start_s,
        first_live_s=first_live_s,
        restart_s=restart_s,
        all_live_s=all_live_s,
        changed_groups=_changed(before, _epochs(cluster)),
    )


def _say(what: str) -> None:
    Console(stderr=True).print(f"the manager: {what}", highlight=False)


def _took(work: Callable[[], object]) -> float:
    began = time.monotonic()
    work()
    return time.monotonic() - began


def _percentile(values: Sequence[float], percent: int) -> float:
    if len(values) < 2:
        raise UnavailableError(f"{len(values)} heartbeats of the probes were answered: too few to say anything")
    return statistics.quantiles(values, n=100, method="inclusive")[percent - 1]


def _workers(cluster: Cluster) -> None:
    """As `rhino status`. Raises UnavailableError unless all are live."""
    with manager_channel(cluster.address) as channel:
        stub = replication_pb2_grpc.ReplicationManagerStub(channel)
        reply = stub.ListWorkers(replication_pb2.ListWorkersRequest(), timeout=CALL_S)
    live = sum(status.state == replication_pb2.WORKER_STATE_LIVE for status in reply.workers)
    if live != cluster.shape.workers:
        raise UnavailableError(f"{live} of {cluster.shape.workers} sidecars are live")


def _epochs(cluster: Cluster) -> dict[bytes, bytes]:
    """The epoch of each group of the first query, both as bytes."""
    with manager_channel(cluster.address) as channel:
        stub = replication_pb2_grpc.ReplicationManagerStub(channel)
        reply = stub.DescribeGroups(replication_pb2.DescribeGroupsRequest(job=cluster.first_job), timeout=CALL_S)
    return {
        status.group.group.SerializeToString(deterministic=True): status.group.epoch.SerializeToString()
        for status in reply.groups
    }


def _changed(before: dict[bytes, bytes], after: dict[bytes, bytes]) -> int:
    return sum(after.get(group) != epoch for group, epoch in before.items())
