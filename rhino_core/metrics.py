"""Prometheus metrics over HTTP (`GET /metrics`). The process's event loop serves them: values are consistent."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from rhino_core.errors import UnavailableError

log = logging.getLogger(__name__)
REQUEST_TIMEOUT_S = 5.0
REQUEST_BYTES_MAX = 8192
CONNECTIONS_MAX = 16  # concurrent connections; further ones are closed
__all__ = ["LATENCY_BUCKETS_S", "CollectorRegistry", "exporting"]
LATENCY_BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


@contextlib.asynccontextmanager
async def exporting(registry: CollectorRegistry, host: str, port: int) -> AsyncIterator[int]:
    """Serves the registry while the context is open, and yields the port. Port 0 selects a free one.

    Raises UnavailableError when the address is in use.
    """

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
                writer.write(_response(registry, request))
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


def _response(registry: CollectorRegistry, request: bytes) -> bytes:
    method, _, rest = request.partition(b" ")
    path = rest.split(b" ", 1)[0].split(b"?", 1)[0]
    if method != b"GET" or path != b"/metrics":
        status, kind, body = "404 Not Found", "text/plain", b"GET /metrics is all there is\n"
    else:
        status, kind, body = "200 OK", CONTENT_TYPE_LATEST, generate_latest(registry)
    head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    return head.encode() + body
