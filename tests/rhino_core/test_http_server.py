"""Strangers at the ports of metrics and health: others are answered all the same."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import time
from collections import Counter
from collections.abc import AsyncIterator

import pytest

from rhino_core import http_server
from rhino_core.errors import UnavailableError
from rhino_core.health import Health
from rhino_core.http_server import CONNECTIONS_MAX, NO_ROOM, OF_ADDRESS_MAX, SILENT, Pages, serving
from rhino_core.metrics import CollectorRegistry, exporting
from tests.rhino_core.support.health import asked
from tests.rhino_core.support.metrics import Daemon, free_port

GET = b"GET /healthz HTTP/1.1\r\n\r\n"


def connection(port: int, said: bytes = b"", host: str = "127.0.0.1") -> socket.socket:
    sock = socket.create_connection(("127.0.0.1", port), timeout=10, source_address=(host, 0))
    sock.sendall(said)
    return sock


@contextlib.asynccontextmanager
async def server(pages: Pages) -> AsyncIterator[tuple[int, Counter[str]]]:
    closed = Counter[str]()
    async with serving("health", "127.0.0.1", 0, pages, closed) as port:
        yield port, closed


async def test_silent_connections_of_one_address_end_no_probe(caplog: pytest.LogCaptureFixture) -> None:
    closed = Counter[str]()
    async with exporting(CollectorRegistry(), "127.0.0.1", 0, Health(), closed=closed) as port:
        silent = [connection(port) for _ in range(100)]
        probes = [await asyncio.to_thread(asked, port, "/healthz") for _ in range(40)]
        assert [status for status, _ in probes] == [200] * 40
        assert closed[NO_ROOM] >= 100 - OF_ADDRESS_MAX
        _, text = await asyncio.to_thread(asked, port, "/metrics")
        assert f'rhino_http_connections_closed_total{{reason="no_room"}} {closed[NO_ROOM]}.0' in text
        for one in silent:
            one.close()
    lines = [r for r in caplog.records if r.levelno == logging.WARNING]
    assert [(r.message, r.__dict__["reason"]) for r in lines] == [
        ("a connection was closed without an answer", NO_ROOM)
    ], "one line, not a hundred"


async def test_silent_connections_of_many_addresses_end_no_probe() -> None:
    async with server(lambda path, _: http_server.health_page(Health(), path)) as (port, closed):
        silent = [connection(port, b"GET", host=f"127.0.1.{number}") for number in range(2 * CONNECTIONS_MAX)]
        for _ in range(20):
            assert (await asyncio.to_thread(asked, port, "/healthz"))[0] == 200
        assert closed[NO_ROOM] >= CONNECTIONS_MAX
        for one in silent:
            one.close()


async def test_a_connection_without_a_first_byte_ends_after_a_second() -> None:
    async with server(lambda path, _: http_server.health_page(Health(), path)) as (port, closed):
        started = time.monotonic()
        with connection(port) as sock:
            assert await asyncio.to_thread(sock.recv, 1) == b""
        assert 0.9 < time.monotonic() - started < 4
        assert closed == {SILENT: 1}


async def test_a_client_that_does_not_read_its_answer_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "REQUEST_TIMEOUT_S", 0.5)
    async with server(lambda path, _: ("200 OK", "text/plain", bytes(64 << 20))) as (port, _):
        with connection(port, GET) as sock:
            await asyncio.sleep(1.5)  # the time limit of the server, which the test cannot see

            def read() -> int:
                return sum(len(part) for part in iter(lambda: sock.recv(1 << 20), b""))

            with contextlib.suppress(ConnectionResetError):
                assert await asyncio.to_thread(read) < 64 << 20


async def test_one_who_has_asked_is_closed_after_those_who_have_not() -> None:
    taken = asyncio.Event()

    def pages(path: bytes, _: object) -> http_server.Page:
        taken.set()
        return "200 OK", "text/plain", bytes(64 << 20)

    async with server(pages) as (port, _):
        with connection(port, GET) as asks:
            await asyncio.wait_for(taken.wait(), 10)
            silent = [connection(port) for _ in range(3 * OF_ADDRESS_MAX)]

            def read() -> int:
                return sum(len(part) for part in iter(lambda: asks.recv(1 << 20), b""))

            assert await asyncio.to_thread(read) > 64 << 20
        for one in silent:
            one.close()


def test_a_daemon_has_a_port_for_health_alone(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder, port = tmp_path_factory.mktemp("m"), free_port()
    arguments = ("--data-dir", str(folder / "d"), "--listen", "127.0.0.1:0", "--bootstrap")
    manager = Daemon("manager", *arguments, "--health-port", str(port))
    try:
        assert asked(port, "/readyz") == (200, "ok\njournal: ok\n")
        assert asked(port, "/metrics")[0] == 404
        assert asked(manager.port, "/readyz")[0] == 200
        silent = [connection(manager.port) for _ in range(16)]
        assert asked(port, "/healthz")[0] == 200
        for one in silent:
            one.close()
    finally:
        assert manager.stop() == 0


@pytest.mark.parametrize("host", ["no-such-host.invalid", "192.0.2.1"])
async def test_a_host_of_another_machine_is_no_fault_of_the_port(host: str) -> None:
    with pytest.raises(UnavailableError, match=r"--listen must name this machine$"):
        async with exporting(CollectorRegistry(), host, 0, Health()):
            raise AssertionError("served")
