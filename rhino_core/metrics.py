"""HTTP for monitoring: Prometheus metrics (`/metrics`) and health (`/healthz`, `/readyz`).

The process's event loop serves them, so values are consistent.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Iterator

from prometheus_client import CollectorRegistry, ProcessCollector, disable_created_metrics, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.registry import Collector

from rhino_core.errors import UnavailableError
from rhino_core.health import Health
from rhino_core.protocol import PROTOCOL
from rhino_core.version import rhino_version

log = logging.getLogger(__name__)
REQUEST_TIMEOUT_S = 5.0
REQUEST_BYTES_MAX = 8192
CONNECTIONS_MAX = 16  # concurrent connections; further ones are closed
TEXT = "text/plain; charset=utf-8"
__all__ = ["LATENCY_BUCKETS_S", "CollectorRegistry", "exporting"]
LATENCY_BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
disable_created_metrics()  # type: ignore[no-untyped-call]  # they would double the number of series, and nobody reads them


class CommonMetrics(Collector):
    """The metrics of both daemons: version, health, and the use of resources (`process_*`)."""

    def __init__(self, registry: CollectorRegistry, health: Health) -> None:
        self._health = health
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


class AuditMetrics(Collector):
    """`missing` returns the number of lines that could not be written since the start."""

    def __init__(self, registry: CollectorRegistry, missing: Callable[[], int]) -> None:
        self._missing = missing
        registry.register(self)

    def collect(self) -> Iterator[Metric]:
        name, text = "rhino_audit_missing_lines", "Lines that could not be written to the file of --audit-log"
        lines = CounterMetricFamily(name, text)
        lines.add_metric([], self._missing())
        yield lines


@contextlib.asynccontextmanager
async def exporting(registry: CollectorRegistry, host: str, port: int, health: Health) -> AsyncIterator[int]:
    """Serves the registry and the health while the context is open, and yields the port. Port 0 selects a free one.

    Raises UnavailableError when the address is in use.
    """
    CommonMetrics(registry, health)
    connections = 0

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        if connections >= CONNECTIONS_MAX:
            writer.close()
            return
        connections += 1
        try:
            async with asyncio.timeout(REQUEST_TIMEOUT_S):
                request = await reader.readuntil(b"\r\n\r\n")
                writer.write(response(registry, health, request))
                await writer.drain()
        except (TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ConnectionError) as error:
            log.debug("metrics request given up", extra={"error": repr(error)})
        finally:
            connections -= 1
            writer.close()

    try:
        server = await asyncio.start_server(answer, host.strip("[]"), port, limit=REQUEST_BYTES_MAX)
    except OSError as error:
        raise UnavailableError(
            f"cannot serve metrics on {host}:{port}: {error}; choose another --metrics-port"
        ) from error
    async with server:
        bound = int(server.sockets[0].getsockname()[1])
        log.info("metrics", extra={"address": f"{host}:{bound}"})
        yield bound


def response(registry: CollectorRegistry, health: Health, request: bytes) -> bytes:
    method, _, rest = request.partition(b" ")
    path = rest.split(b" ", 1)[0].split(b"?", 1)[0]
    if method not in (b"GET", b"HEAD"):
        status, kind, body = "405 Method Not Allowed", TEXT, b"GET and HEAD only\n"
    else:
        status, kind, body = _found(registry, health, path)
    head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    return head.encode() + (b"" if method == b"HEAD" else body)


def _found(registry: CollectorRegistry, health: Health, path: bytes) -> tuple[str, str, bytes]:
    """Status, content type and body of a path."""
    match path:
        case b"/metrics":
            return "200 OK", CONTENT_TYPE_LATEST, generate_latest(registry)
        case b"/healthz" | b"/readyz":
            report = health.alive() if path == b"/healthz" else health.ready()
            return "200 OK" if report.good else "503 Service Unavailable", TEXT, report.text().encode()
        case _:
            return "404 Not Found", TEXT, b"/metrics, /healthz and /readyz are all there is\n"
