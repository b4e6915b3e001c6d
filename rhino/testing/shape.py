"""How large a local cluster is, and whether it adapts."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ClusterShape:
    """Sizes of a local cluster, and the mode of its adaptation (`rhino manager --adaptation`).

    `applications`: so many have executors at a time, one each on every worker. `manager_options`: further options of
    `rhino manager`, as one types them. `managers`: of several, one leads, and sidecars keep their journal.
    """

    worker_cores: int = 2  # concurrent tasks of an application on each worker
    executor_memory_mb: int = 768  # heap of an executor, one per worker and application
    driver_memory_mb: int = 768  # heap of the driver
    adaptation: str = "observe"
    manager_options: tuple[str, ...] = ()
    applications: int = 1
    managers: int = 1
