"""How large a local cluster is."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ClusterShape:
    """Sizes of a local cluster."""

    worker_cores: int = 2  # concurrent tasks on each worker
    executor_memory_mb: int = 768  # heap of an executor, one per worker
    driver_memory_mb: int = 768  # heap of the driver
