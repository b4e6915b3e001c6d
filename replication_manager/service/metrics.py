"""The Prometheus metrics of the replication manager."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from replication_manager.protocol.machine import ReplicationMachine
from replication_manager.protocol.membership import WorkerState
from replication_manager.service.messages import group_status
from rhino_core.ids import DiskState


class ReplicationMetrics(Collector):
    """Reads the core when the metrics are requested."""

    def __init__(self, core: ReplicationMachine, registry: CollectorRegistry) -> None:
        self._core = core
        registry.register(self)

    def collect(self) -> Iterator[Metric]:
        yield GaugeMetricFamily(
            "rhino_replication_lag_versions",
            "Versions by which the least advanced secondary of any group is behind its owner, by the workers' reports",
            max((group_status(self._core, group).lag_versions for group in self._core.groups.values()), default=0),
        )
        workers = GaugeMetricFamily("rhino_workers", "Known workers by state", labels=["state"])
        states = [record.state for record in self._core.membership.records.values()]
        for state in WorkerState:
            workers.add_metric([state.value], states.count(state))
        yield workers
        yield GaugeMetricFamily(
            "rhino_draining_workers", "Workers that are being emptied (`rhino drain`)", len(self._core.draining)
        )
        disks = GaugeMetricFamily("rhino_worker_disks", "Disks of known workers by state", labels=["state"])
        found = [record.disk for record in self._core.membership.records.values()]
        for disk in DiskState:
            disks.add_metric([disk.value], found.count(disk))
        yield disks
