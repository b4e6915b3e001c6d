"""The Prometheus metrics of a sidecar. Labels are few and fixed: never a job, a worker or a file."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from rhino_archive.bucket import used
from rhino_core.ids import DiskState, FileKind, Source
from rhino_core.metrics import LATENCY_BUCKETS_S, ArchiveMetrics, AuditMetrics
from worker_runtime.node import Node
from worker_runtime.protocol.copies.preparing import PrepareState
from worker_runtime.push.core.records import KINDS
from worker_runtime.statistics import CommitRecord, PrepareRecord


class SidecarMetrics(Collector):
    """Observes calls as they end, and reads everything else when scraped."""

    def __init__(self, registry: CollectorRegistry, node: Node) -> None:
        self._registry = registry
        self._node = node
        self._replication, self._statistics, self._scrubber = node.replication, node.statistics, node.scrubber
        self._commits = Histogram(
            "rhino_commit_duration_seconds",
            "Time of a Commit in the sidecar, until enough copies were held",
            ["kind"],
            buckets=LATENCY_BUCKETS_S,
            registry=registry,
        )
        self._prepares = Histogram(
            "rhino_prepare_duration_seconds",
            "Time of a Prepare that ended READY, by the worst source of its files",
            ["source"],
            buckets=LATENCY_BUCKETS_S,
            registry=registry,
        )
        self._not_ready = Counter(
            "rhino_prepares_not_ready",
            "Prepares that ended otherwise",
            ["state"],
            registry=registry,
        )
        for kind in (FileKind.CHANGELOG, FileKind.SNAPSHOT):
            self._commits.labels(kind.value)
        for source in Source:
            self._prepares.labels(source.value)
        for state in (PrepareState.UNAVAILABLE, PrepareState.LOST):
            self._not_ready.labels(state.value)

    def register(self) -> None:
        """Starts to observe and export."""
        self._statistics.on_commit, self._statistics.on_prepare = self._committed, self._prepared
        self._registry.register(self)
        AuditMetrics(self._registry, lambda: self._node.audit.missing_total)
        ArchiveMetrics(self._registry, used)

    def _committed(self, record: CommitRecord) -> None:
        self._commits.labels(record.kind.value).observe(record.duration_ms / 1000)

    def _prepared(self, record: PrepareRecord) -> None:
        if record.source is not None:
            self._prepares.labels(record.source.value).observe(record.duration_ms / 1000)
        else:
            self._not_ready.labels(record.state.value).inc()

    def collect(self) -> Iterator[Metric]:
        moved = CounterMetricFamily(
            "rhino_replicated_bytes", "State bytes exchanged with other sidecars since start", labels=["direction"]
        )
        moved.add_metric(["sent"], self._statistics.sent_bytes)
        moved.add_metric(["received"], self._statistics.received_bytes)
        yield moved
        yield GaugeMetricFamily(
            "rhino_replication_lag_bytes",
            "Bytes of files that other members have not stored yet, once for each member",
            self._replication.view.pending_bytes(),
        )
        yield GaugeMetricFamily(
            "rhino_stored_bytes", "State bytes on disk", self._replication.store.files.stored_bytes()
        )
        alarms = CounterMetricFamily(
            "rhino_push_alarms",
            "Streams of files whose bytes are not those that the peer has sent; cut, unfinished: also if it stops",
            labels=["kind"],
        )
        for kind in KINDS:
            alarms.add_metric([kind], self._statistics.push_alarms[kind])
        yield alarms
        yield from self._state()
        yield CounterMetricFamily(
            "rhino_scrub_errors", "Damaged or missing files that scrubs have found since start", self._scrubber.found
        )

    def _state(self) -> Iterator[Metric]:
        """Waiting commits, the connection to the manager, and the disk."""
        space, on = self._replication.store.space, self._replication.store.disk
        yield GaugeMetricFamily("rhino_waiting_commits", "Commits that have not ended", self._node.waiting_commits)
        yield GaugeMetricFamily(
            "rhino_manager_connected",
            "1 while this sidecar is registered with the manager",
            self._node.manager.connected,
        )
        yield GaugeMetricFamily("rhino_disk_free_bytes", "Free bytes of the disk of --data-dir", on.free_bytes())
        yield GaugeMetricFamily("rhino_disk_size_bytes", "Size of the disk of --data-dir", on.capacity_bytes())
        disk = GaugeMetricFamily("rhino_disk_state", "1 for the state of the disk, 0 for the others", labels=["state"])
        for state in DiskState:
            disk.add_metric([state.value], space.state()[0] is state)
        yield disk
