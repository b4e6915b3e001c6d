"""The probe finds out that a process has ended. A silent or serving process does not count as ended."""

from __future__ import annotations

import asyncio
import socket

from replication_manager.service.probe import refuses


async def test_a_port_without_a_process_refuses() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))  # bound, and nobody listens: no other process gets it meanwhile
        assert await refuses(f"127.0.0.1:{probe.getsockname()[1]}")


async def test_a_port_that_is_served_does_not() -> None:
    server = await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", 0)
    async with server:
        assert not await refuses(f"127.0.0.1:{server.sockets[0].getsockname()[1]}")


async def test_a_name_that_nobody_knows_proves_nothing() -> None:
    assert not await refuses("no-such-host.invalid:1")
