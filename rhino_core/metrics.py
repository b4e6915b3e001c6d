"""HTTP or HTTPS for monitoring: Prometheus metrics (`/metrics`) and health (`/healthz`, `/readyz`).

The process's event loop serves them, so values are consistent.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from typing import Any, Protocol

from prometheus_client import CollectorRegistry, ProcessCollector, disable_created_metrics, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.registry import Collector

from rhino_core.descriptors import LogLimit
from rhino_core.errors import UnavailableError
from rhino_core.health import Health
from rhino_core.protocol import PROTOCOL
from rhino_core.version import rhino_version

log = logging.getLogger(__name__)
REQUEST_TIMEOUT_S = 5.0
REQUEST_BYTES_MAX = 8192
CONNECTIONS_MAX = 16  # concurrent connections; further ones are closed
PAUSE_S = 0.1  # after a connection that could not be accepted
Certificate = Mapping[str, Any] | None  # of a client, as the module ssl describes it; None: it has presented none
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


class Https(Protocol):
    """How metrics are encrypted, and who may read them."""

    @property
    def context(self) -> ssl.SSLContext: ...

    def refusal(self, certificate: Certificate, peer: str) -> str:
        """Why a caller with this certificate may not read metrics. Empty: it may. `peer`: its address."""
        ...


@contextlib.asynccontextmanager
async def exporting(
    registry: CollectorRegistry, host: str, port: int, health: Health, https: Https | None = None
) -> AsyncIterator[int]:
    """Serves the registry and the health while the context is open, and yields the port. Port 0 selects a free one.

    `https`: None: plain HTTP. Raises UnavailableError when the address is in use.
    """
    CommonMetrics(registry, health)
    host = host.strip("[]")
    try:
        listener = socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        raise UnavailableError(
            f"cannot serve metrics on {host}:{port}: {error}; choose another --metrics-port"
        ) from error
    listener.setblocking(False)
    server = _Server(lambda request, refusal: response(registry, health, request, refusal), https)
    serving = asyncio.create_task(server.run(listener), name="metrics")
    try:
        bound = int(listener.getsockname()[1])
        log.info("metrics", extra={"address": f"{host}:{bound}", "encrypted": https is not None})
        yield bound
    finally:
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)


class _Server:
    """Answers one request of each connection. Connections count from the beginning, also those that say nothing."""

    def __init__(self, answer: Callable[[bytes, Callable[[], str]], bytes], https: Https | None) -> None:
        self._answer = answer
        self._https = https
        self._connections: set[asyncio.Task[None]] = set()
        self._refusals = LogLimit(asyncio.get_running_loop().time)

    async def run(self, listener: socket.socket) -> None:
        """Until cancelled. Closes the listener."""
        try:
            while True:
                try:
                    sock, peer = await asyncio.get_running_loop().sock_accept(listener)
                except OSError as error:  # too many open files, or the connection is already gone
                    log.debug("cannot accept a connection for metrics", extra={"error": str(error)})
                    await asyncio.sleep(PAUSE_S)
                    continue
                if len(self._connections) >= CONNECTIONS_MAX:
                    sock.close()
                    continue
                task = asyncio.create_task(self._serve(sock, f"{peer[0]}:{peer[1]}"), name="metrics request")
                self._connections.add(task)
                task.add_done_callback(self._connections.discard)
        finally:
            listener.close()
            for task in self._connections:
                task.cancel()
            await asyncio.gather(*self._connections, return_exceptions=True)

    async def _serve(self, sock: socket.socket, peer: str) -> None:
        try:
            async with asyncio.timeout(REQUEST_TIMEOUT_S):
                reader, writer = await self._opened(sock)
                try:
                    request = await reader.readuntil(b"\r\n\r\n")
                    writer.write(self._answer(request, lambda: self._refusal(writer, peer)))
                    await writer.drain()
                finally:
                    writer.close()
        except ssl.SSLError as error:
            if (left_out := self._refusals.due()) is not None:
                extra = {"from": peer, "error": str(error), "times_before": left_out}
                log.warning("a connection for metrics was refused", extra=extra)
        except (TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, OSError) as error:
            log.debug("metrics request given up", extra={"error": repr(error)})

    async def _opened(self, sock: socket.socket) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit=REQUEST_BYTES_MAX, loop=loop)
        protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
        context = None if self._https is None else self._https.context
        transport, _ = await loop.connect_accepted_socket(lambda: protocol, sock, ssl=context)
        return reader, asyncio.StreamWriter(transport, protocol, reader, loop)

    def _refusal(self, writer: asyncio.StreamWriter, peer: str) -> str:
        return "" if self._https is None else self._https.refusal(writer.get_extra_info("peercert"), peer)


def response(
    registry: CollectorRegistry, health: Health, request: bytes, refusal: Callable[[], str] = lambda: ""
) -> bytes:
    """The answer to a request. `refusal` is asked for metrics only: it returns why the caller may not read them."""
    method, _, rest = request.partition(b" ")
    path = rest.split(b" ", 1)[0].split(b"?", 1)[0]
    if method not in (b"GET", b"HEAD"):
        status, kind, body = "405 Method Not Allowed", TEXT, b"GET and HEAD only\n"
    else:
        status, kind, body = _found(registry, health, path, refusal)
    head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    return head.encode() + (b"" if method == b"HEAD" else body)


def _found(
    registry: CollectorRegistry, health: Health, path: bytes, refusal: Callable[[], str]
) -> tuple[str, str, bytes]:
    """Status, content type and body of a path."""
    match path:
        case b"/metrics":
            if why := refusal():
                return "403 Forbidden", TEXT, f"{why}\n".encode()
            return "200 OK", CONTENT_TYPE_LATEST, generate_latest(registry)
        case b"/healthz" | b"/readyz":
            report = health.alive() if path == b"/healthz" else health.ready()
            return "200 OK" if report.good else "503 Service Unavailable", TEXT, report.text().encode()
        case _:
            return "404 Not Found", TEXT, b"/metrics, /healthz and /readyz are all there is\n"
