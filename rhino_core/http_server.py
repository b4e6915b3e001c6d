"""A small HTTP or HTTPS server for monitoring. Strangers cannot keep it from others.

Each connection has one request. When there is no room for a further connection, the oldest one without a complete
request is closed, and only then the oldest of the others.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import socket
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from rhino_core.descriptors import LogLimits
from rhino_core.errors import UnavailableError
from rhino_core.health import Health

log = logging.getLogger(__name__)
NOT_HERE = (errno.EADDRNOTAVAIL, socket.EAI_NONAME, socket.EAI_AGAIN)  # of a host that is none of this machine
FIRST_BYTE_S = 1.0
REQUEST_TIMEOUT_S = 5.0
REQUEST_BYTES_MAX = 8192
CONNECTIONS_MAX = 64
OF_ADDRESS_MAX = 8  # concurrent connections of one address
PAUSE_S = 0.1  # after a connection that could not be accepted
TEXT = "text/plain; charset=utf-8"
SILENT, NO_ROOM, BAD_TLS = "silent", "no_room", "tls"  # why a connection was closed
Certificate: TypeAlias = Mapping[str, Any] | None  # of a client, as the module ssl describes it; None: it has none
Page: TypeAlias = tuple[str, str, bytes]  # status, content type and body
Pages: TypeAlias = Callable[[bytes, Callable[[], str]], Page]  # of a path, and of why the caller may not read secrets


class Https(Protocol):
    """Encryption of connections, and the right to read pages that are not for everybody."""

    @property
    def context(self) -> ssl.SSLContext: ...

    def refusal(self, certificate: Certificate, peer: str) -> str:
        """Why a caller with this certificate may not read it. Empty: it may. `peer`: its address."""


def health_page(health: Health, path: bytes) -> Page:
    """`/healthz` and `/readyz`, and a list of them for any other path."""
    if path not in (b"/healthz", b"/readyz"):
        return "404 Not Found", TEXT, b"/healthz and /readyz are all there is\n"
    report = health.alive() if path == b"/healthz" else health.ready()
    return "200 OK" if report.good else "503 Service Unavailable", TEXT, report.text().encode()


@contextlib.asynccontextmanager
async def serving(
    what: str, host: str, port: int, pages: Pages, closed: Counter[str], https: Https | None = None
) -> AsyncIterator[int]:
    """Serves the pages while the context is open, and yields the port. Port 0 selects a free one.

    `what` names the pages in log lines and in the setting `--<what>-port`. `closed` counts the connections closed
    without an answer, by reason. `https`: None: plain HTTP. Raises UnavailableError for an address in use, and for a
    host of another machine.
    """
    host = host.strip("[]")
    try:
        listener = socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        way_out = "--listen must name this machine" if error.errno in NOT_HERE else f"choose another --{what}-port"
        raise UnavailableError(f"cannot serve {what} on {host}:{port}: {error}; {way_out}") from error
    listener.setblocking(False)
    task = asyncio.create_task(_Server(what, pages, closed, https).run(listener), name=what)
    try:
        bound = int(listener.getsockname()[1])
        log.info(what, extra={"address": f"{host}:{bound}", "encrypted": https is not None})
        yield bound
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@contextlib.asynccontextmanager
async def serving_health(host: str, port: int, health: Health, closed: Counter[str]) -> AsyncIterator[None]:
    """Serves the health over HTTP while the context is open; port 0: not."""
    if not port:
        yield
        return
    async with serving("health", host, port, lambda path, _: health_page(health, path), closed):
        yield


@dataclass(eq=False, slots=True)
class _Connection:
    sock: socket.socket
    host: str
    peer: str
    asked: bool = False  # its request is complete
    task: asyncio.Task[None] | None = None


class _Server:
    def __init__(self, what: str, pages: Pages, closed: Counter[str], https: Https | None) -> None:
        self._what = what
        self._pages = pages
        self._closed = closed
        self._https = https
        self._connections: dict[_Connection, None] = {}  # the oldest first
        self._limits = LogLimits(asyncio.get_running_loop().time)

    async def run(self, listener: socket.socket) -> None:
        """Until cancelled. Closes the listener."""
        try:
            while True:
                try:
                    sock, peer = await asyncio.get_running_loop().sock_accept(listener)
                except OSError as error:  # too many open files, or the connection is already gone
                    log.debug("cannot accept a connection", extra={"what": self._what, "error": str(error)})
                    await asyncio.sleep(PAUSE_S)
                    continue
                self._make_room(peer[0])
                connection = _Connection(sock, peer[0], f"{peer[0]}:{peer[1]}")
                self._connections[connection] = None
                connection.task = asyncio.create_task(self._serve(connection), name=f"{self._what} request")
        finally:
            listener.close()
            tasks = [one.task for one in self._connections if one.task is not None]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _make_room(self, host: str) -> None:
        """For a further connection of this address."""
        crowd = [one for one in self._connections if one.host == host]
        if len(crowd) < OF_ADDRESS_MAX:
            crowd = list(self._connections)
            if len(crowd) < CONNECTIONS_MAX:
                return
        leaves = min(crowd, key=lambda one: one.asked)  # the first of several
        del self._connections[leaves]
        self._note(NO_ROOM, leaves)
        if leaves.task is not None:
            leaves.task.cancel()

    def _note(self, reason: str, connection: _Connection, error: str = "") -> None:
        self._closed[reason] += 1
        if (left_out := self._limits.due(reason)) is not None:
            log.warning(
                "a connection was closed without an answer",
                extra={
                    "what": self._what,
                    "reason": reason,
                    "from": connection.peer,
                    "error": error,
                    "left_out": left_out,
                },
            )

    async def _serve(self, connection: _Connection) -> None:
        try:
            async with asyncio.timeout(REQUEST_TIMEOUT_S):
                if not await _says_something(connection.sock):
                    self._note(SILENT, connection)
                    return
                await self._answer(connection)
        except ssl.SSLError as error:
            self._note(BAD_TLS, connection, str(error))
        except (TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, OSError) as error:
            log.debug("request given up", extra={"what": self._what, "error": repr(error)})
        finally:
            self._connections.pop(connection, None)
            connection.sock.close()

    async def _answer(self, connection: _Connection) -> None:
        reader, writer = await self._opened(connection.sock)
        try:
            request = await reader.readuntil(b"\r\n\r\n")
            connection.asked = True
            writer.write(reply(self._pages, request, lambda: self._refusal(writer, connection.peer)))
            await writer.drain()
            writer.close()
            await writer.wait_closed()
        finally:
            writer.transport.abort()  # what a client does not take would stay

    async def _opened(self, sock: socket.socket) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit=REQUEST_BYTES_MAX, loop=loop)
        protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
        context = None if self._https is None else self._https.context
        transport, _ = await loop.connect_accepted_socket(lambda: protocol, sock, ssl=context)
        return reader, asyncio.StreamWriter(transport, protocol, reader, loop)

    def _refusal(self, writer: asyncio.StreamWriter, peer: str) -> str:
        return "" if self._https is None else self._https.refusal(writer.get_extra_info("peercert"), peer)


def reply(pages: Pages, request: bytes, refusal: Callable[[], str] = lambda: "") -> bytes:
    """The answer to a request. `refusal`: why the caller may not read pages that are not for everybody."""
    method, _, rest = request.partition(b" ")
    path = rest.split(b" ", 1)[0].split(b"?", 1)[0]
    if method not in (b"GET", b"HEAD"):
        status, kind, body = "405 Method Not Allowed", TEXT, b"GET and HEAD only\n"
    else:
        status, kind, body = pages(path, refusal)
    head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    return head.encode() + (b"" if method == b"HEAD" else body)


async def _says_something(sock: socket.socket) -> bool:
    """Whether a first byte, or the end, arrives in time. It is not taken from the socket."""
    loop, heard = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(sock, heard.set)
    try:
        await asyncio.wait_for(heard.wait(), FIRST_BYTE_S)
    except TimeoutError:
        return False
    finally:
        loop.remove_reader(sock)
    return True
