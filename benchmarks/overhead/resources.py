"""Resources of the processes of a cluster: processor, memory, disk, and the network between sidecars."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import psutil

from benchmarks.usage import peak_resident_bytes
from rhino.client.handover_client import HandoverClient
from rhino.testing import LocalCluster
from rhino.testing.describe import describe
from rhino.testing.session import driver_pid
from rhino_core.errors import UnavailableError

QUIET_CPU_S = 0.05  # of all daemons in a second: what heartbeats take
QUIET_TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True)
class Reading:
    """Since the start of the processes. `spark_cpu_s`: driver and executors; `daemons_cpu_s`: manager and sidecars.

    `archive_bytes`: in the archive.
    """

    spark_cpu_s: float
    daemons_cpu_s: float
    disk_bytes: int
    network_bytes: int
    archive_bytes: int = 0

    def since(self, before: Reading) -> Reading:
        return Reading(
            self.spark_cpu_s - before.spark_cpu_s,
            self.daemons_cpu_s - before.daemons_cpu_s,
            self.disk_bytes - before.disk_bytes,
            self.network_bytes - before.network_bytes,
            self.archive_bytes - before.archive_bytes,
        )


def read(cluster: LocalCluster, archive: str = "") -> Reading:
    """`disk_bytes`: written by executors and sidecars, by the kernel's count of bytes to write back.

    `archive`: its folder, if there is one.
    """
    executors = [pid for worker in cluster.workers for pid in worker.executor_pids()]
    writers = [psutil.Process(pid) for pid in (*executors, *sidecar_pids(cluster))]
    return Reading(
        _cpu_s((*executors, driver_pid())),
        daemons_cpu_s(cluster),
        sum(process.io_counters().write_bytes for process in writers),
        sum(
            describe(w.worker_id, w.peer_address, prepares_max=0, commits_max=0).replicated_bytes_in
            for w in cluster.workers
        ),
        sum(path.stat().st_size for path in Path(archive).rglob("*") if path.is_file()) if archive else 0,
    )


def wait_until_archived(cluster: LocalCluster, job: str, timeout_s: float = QUIET_TIMEOUT_S) -> None:
    """Until the newest batch of a query is in the archive. Raises UnavailableError."""
    deadline = time.monotonic() + timeout_s
    with HandoverClient(cluster.manager) as client:
        found = client.archive_now(job)
        while not all(query.whole for query in found.queries if query.job == job):
            if time.monotonic() > deadline:
                raise UnavailableError(f"after {timeout_s:g} s the archive lacks a batch: {found.queries}")
            time.sleep(0.2)
            found = client.archive()


def wait_until_quiet(cluster: LocalCluster) -> None:
    """Until the daemons have done their work. The next query then pays for itself alone."""
    deadline = time.monotonic() + QUIET_TIMEOUT_S
    before = daemons_cpu_s(cluster)
    while time.monotonic() < deadline:
        time.sleep(1)
        now = daemons_cpu_s(cluster)
        if now - before < QUIET_CPU_S:
            return
        before = now


def daemons_cpu_s(cluster: LocalCluster) -> float:
    """Processor time of manager and sidecars since their start."""
    return _cpu_s((cluster.manager_pid, *sidecar_pids(cluster)))


def _cpu_s(pids: Iterable[int]) -> float:
    times = [psutil.Process(pid).cpu_times() for pid in pids]
    return float(sum(t.user + t.system for t in times))


def sidecar_pids(cluster: LocalCluster) -> list[int]:
    return [pid for worker in cluster.workers if worker.sidecar for pid in worker.sidecar.session_pids()]


def peaks(cluster: LocalCluster) -> tuple[int, int]:
    """Highest resident bytes of an executor, and of a sidecar."""
    executors = [pid for worker in cluster.workers for pid in worker.executor_pids()]
    return max(map(peak_resident_bytes, executors)), max(map(peak_resident_bytes, sidecar_pids(cluster)))
