"""The Prometheus metrics of the replication manager."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from replication_manager.protocol.machine import ReplicationMachine
from replication_manager.protocol.workers.worker_record import WorkerState
from replication_manager.service.messages import lag_versions
from rhino_core.ids import DiskState, GroupId

EVERY_S = 1.0  # between two looks at the groups that have changed
GROUPS_AT_ONCE = 100  # that are looked at before others have their turn
PAUSE_S = 0.02  # which needs several turns of the event loop


class Lags:
    """The lag of each lagging group. Only changed groups are looked at again."""

    def __init__(self, core: ReplicationMachine) -> None:
        self._core = core
        self._changed = set(core.groups)
        self._lags: dict[GroupId, int] = {}

    def changed(self, groups: Iterable[GroupId]) -> None:
        """A group is another one, or a worker has reported it."""
        self._changed.update(groups)

    def look(self, most: int | None = None) -> bool:
        """Looks at changed groups, at most `most`. Returns whether some are left."""
        for _ in range(len(self._changed) if most is None else min(most, len(self._changed))):
            name = self._changed.pop()
            group = self._core.groups.get(name)
            lag = lag_versions(self._core, group) if group is not None else 0
            if lag:
                self._lags[name] = lag
            else:
                self._lags.pop(name, None)
        return bool(self._changed)

    def highest(self) -> int:
        self.look()
        return max(self._lags.values(), default=0)


class ReplicationMetrics(Collector):
    """Reads the core when the metrics are requested. `follow` does most of the work before, a little at a time."""

    def __init__(
        self, core: ReplicationMachine, registry: CollectorRegistry, witnesses: Callable[[], Mapping[str, int]]
    ) -> None:
        """`witnesses`: how many there are by state."""
        self._core = core
        self._witnesses = witnesses
        self.lags = Lags(core)
        registry.register(self)

    async def follow(self) -> None:
        """Until cancelled."""
        while True:  # noqa: ASYNC110  it is a pause between parts of the work, and waits for nothing
            await asyncio.sleep(PAUSE_S if self.lags.look(GROUPS_AT_ONCE) else EVERY_S)

    def collect(self) -> Iterator[Metric]:
        yield GaugeMetricFamily(
            "rhino_replication_lag_versions",
            "Versions by which the least advanced secondary of any group is behind its owner, by the workers' reports",
            self.lags.highest(),
        )
        workers = GaugeMetricFamily("rhino_workers", "Known workers by state", labels=["state"])
        states = [record.state for record in self._core.membership.records.values()]
        for state in WorkerState:
            workers.add_metric([state.value], states.count(state))
        yield workers
        witnesses = GaugeMetricFamily("rhino_witnesses", "Witnesses of the journal by state", labels=["state"])
        for kind, number in self._witnesses().items():
            witnesses.add_metric([kind], number)
        yield witnesses
        yield GaugeMetricFamily(
            "rhino_draining_workers", "Workers that are being emptied (`rhino drain`)", len(self._core.draining)
        )
        disks = GaugeMetricFamily("rhino_worker_disks", "Disks of known workers by state", labels=["state"])
        found = [record.disk for record in self._core.membership.records.values()]
        for disk in DiskState:
            disks.add_metric([disk.value], found.count(disk))
        yield disks
