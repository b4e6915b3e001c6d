"""What the processes of a cluster use: processor, memory, disk; and the network between sidecars."""

from __future__ import annotations

from dataclasses import dataclass

import psutil

from benchmarks.usage import peak_resident_bytes
from deploy.local import LocalCluster
from deploy.local.rpc.describe import describe


@dataclass(frozen=True, slots=True)
class Reading:
    """Since the start of the processes; `cpu_s` by kind of process."""

    executors_cpu_s: float
    sidecars_cpu_s: float
    disk_bytes: int
    network_bytes: int

    def since(self, before: Reading) -> Reading:
        return Reading(
            self.executors_cpu_s - before.executors_cpu_s,
            self.sidecars_cpu_s - before.sidecars_cpu_s,
            self.disk_bytes - before.disk_bytes,
            self.network_bytes - before.network_bytes,
        )


def read(cluster: LocalCluster) -> Reading:
    """`disk_bytes`: written by executors and sidecars, as the kernel counts what it will have to write back."""
    executors = [psutil.Process(pid) for worker in cluster.workers for pid in worker.executor_pids()]
    sidecars = [psutil.Process(pid) for pid in sidecar_pids(cluster)]
    return Reading(
        sum(_cpu_s(process) for process in executors),
        sum(_cpu_s(process) for process in sidecars),
        sum(process.io_counters().write_bytes for process in (*executors, *sidecars)),
        sum(describe(w.peer_address, prepares_max=0, commits_max=0).replicated_bytes_in for w in cluster.workers),
    )


def _cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def sidecar_pids(cluster: LocalCluster) -> list[int]:
    return [pid for worker in cluster.workers if worker.sidecar for pid in worker.sidecar.session_pids()]


def peaks(cluster: LocalCluster) -> tuple[int, int]:
    """Highest resident bytes that an executor, and a sidecar, has had."""
    executors = [pid for worker in cluster.workers for pid in worker.executor_pids()]
    return max(map(peak_resident_bytes, executors)), max(map(peak_resident_bytes, sidecar_pids(cluster)))
