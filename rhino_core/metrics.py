"""HTTP or HTTPS for monitoring: Prometheus metrics (`/metrics`) and health (`/healthz`, `/readyz`).

The process's event loop serves them, so values are consistent.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from functools import partial

from prometheus_client import CollectorRegistry, ProcessCollector, disable_created_metrics, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.registry import Collector

from rhino_core.health import Health
from rhino_core.http_server import BAD_TLS, NO_ROOM, SILENT, TEXT, Https, Page, health_page, serving
from rhino_core.version import PROTOCOL, rhino_version

__all__ = ["LATENCY_BUCKETS_S", "CollectorRegistry", "exporting"]
LATENCY_BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
disable_created_metrics()  # type: ignore[no-untyped-call]  # they would double the number of series, and nobody reads them


class CommonMetrics(Collector):
    """The metrics of both daemons: version, health, and the use of resources (`process_*`)."""

    def __init__(self, registry: CollectorRegistry, health: Health, closed: Counter[str]) -> None:
        """`closed`: connections to the ports of metrics and health, by reason."""
        self._health = health
        self._closed = closed
        ProcessCollector(registry=registry)
        registry.register(self)

    def collect(self) -> Iterator[Metric]:
        build = GaugeMetricFamily("rhino_build_info", "Always 1, with the versions", labels=["version", "protocol"])
        build.add_metric([rhino_version(), str(PROTOCOL)], 1)
        yield build
        healthy = GaugeMetricFamily("rhino_health", "1 if the check of /readyz passes, 0 if it fails", labels=["check"])
        for check, failure in self._health.ready().failures.items():
            healthy.add_metric([check], not failure)
        yield healthy
        closed = CounterMetricFamily(
            "rhino_http_connections_closed",
            "Connections to --metrics-port and --health-port that were closed without an answer",
            labels=["reason"],
        )
        for reason in (SILENT, NO_ROOM, BAD_TLS):
            closed.add_metric([reason], self._closed[reason])
        yield closed


class AuditMetrics(Collector):
    """`missing` returns the number of lines lost since the start."""

    def __init__(self, registry: CollectorRegistry, missing: Callable[[], int]) -> None:
        self._missing = missing
        registry.register(self)

    def collect(self) -> Iterator[Metric]:
        lines = CounterMetricFamily(
            "rhino_audit_missing_lines", "Lines that could not be written to the file of --audit-log"
        )
        lines.add_metric([], self._missing())
        yield lines


class ArchiveMetrics(Collector):
    """`used` returns requests by kind, and bytes sent and received, since the start. Requests are paid."""

    def __init__(self, registry: CollectorRegistry, used: Callable[[], tuple[Mapping[str, int], int, int]]) -> None:
        self._used = used
        registry.register(self)

    def collect(self) -> Iterator[Metric]:
        by_kind, sent, received = self._used()
        requests = CounterMetricFamily(
            "rhino_archive_requests", "Requests of this process to the archive, without repeated ones", labels=["kind"]
        )
        for kind, number in by_kind.items():
            requests.add_metric([kind], number)
        yield requests
        moved = CounterMetricFamily(
            "rhino_archive_bytes",
            "Bytes that this process has written to and read from the archive",
            labels=["direction"],
        )
        moved.add_metric(["sent"], sent)
        moved.add_metric(["received"], received)
        yield moved


@contextlib.asynccontextmanager
async def exporting(
    registry: CollectorRegistry,
    host: str,
    port: int,
    health: Health,
    https: Https | None = None,
    closed: Counter[str] | None = None,
) -> AsyncIterator[int]:
    """Serves the registry and the health while the context is open, and yields the port. Port 0 selects a free one.

    `https`: None: plain HTTP. `closed`: also of the other servers in these metrics. Raises UnavailableError when the
    address is in use.
    """
    closed = Counter() if closed is None else closed
    CommonMetrics(registry, health, closed)
    async with serving("metrics", host, port, partial(page, registry, health), closed, https) as bound:
        yield bound


def page(registry: CollectorRegistry, health: Health, path: bytes, refusal: Callable[[], str]) -> Page:
    """`refusal` is asked for metrics only: it returns why the caller may not read them."""
    if path != b"/metrics":
        return health_page(health, path)
    if why := refusal():
        return "403 Forbidden", TEXT, f"{why}\n".encode()
    return "200 OK", CONTENT_TYPE_LATEST, generate_latest(registry)
