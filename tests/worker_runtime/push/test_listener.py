"""How many connections a sidecar's push port keeps, without a token and with one."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from typing import Any

import pytest

from rhino_core.ids import Lane
from worker_runtime.push import opening as module
from worker_runtime.push.alarms import Alarms
from worker_runtime.push.listener import STREAMS_MAX, UNKNOWN_MAX, PushListener
from worker_runtime.push.sockets import connect
from worker_runtime.statistics import Statistics


class SlowDisk:
    """A receiver whose streams do not end."""

    def __init__(self) -> None:
        self.served = asyncio.Semaphore(0)
        self.alarms = Alarms(Statistics())

    async def serve(self, wire: Any, sender: str, lane: Lane) -> None:
        self.served.release()
        await asyncio.Event().wait()


@pytest.fixture
async def receiver() -> SlowDisk:
    return SlowDisk()


@pytest.fixture
async def listener(receiver: SlowDisk, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[PushListener]:
    monkeypatch.setattr(module, "TOKEN_S", 600.0)
    made = PushListener(receiver, "127.0.0.1", 0)  # type: ignore[arg-type]
    running = asyncio.create_task(made.run())
    yield made
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def ends(sock: socket.socket) -> bytes:
    async with asyncio.timeout(10):
        return await asyncio.get_running_loop().sock_recv(sock, 1)


async def test_the_oldest_connection_without_a_token_goes_for_a_further_one(
    listener: PushListener, receiver: SlowDisk
) -> None:
    silent = []
    for _ in range(UNKNOWN_MAX + 3):
        silent.append(await connect("127.0.0.1", listener.port, b""))
    for gone in silent[:3]:
        assert await ends(gone) == b""
    worker = await connect("127.0.0.1", listener.port, listener.admit("w", Lane.COMMIT).token)
    async with asyncio.timeout(10):
        await receiver.served.acquire()
    assert len(listener._unknown) < UNKNOWN_MAX
    for sock in (*silent, worker):
        sock.close()


async def test_streams_of_one_worker_that_do_not_end_are_few(listener: PushListener, receiver: SlowDisk) -> None:
    streams = []
    for _ in range(STREAMS_MAX):
        streams.append(await connect("127.0.0.1", listener.port, listener.admit("w", Lane.BULK).token))
        async with asyncio.timeout(10):
            await receiver.served.acquire()
    streams.append(await connect("127.0.0.1", listener.port, listener.admit("w", Lane.BULK).token))
    assert await ends(streams[-1]) == b""
    for sender, lane in (("w", Lane.COMMIT), ("other", Lane.BULK)):
        streams.append(await connect("127.0.0.1", listener.port, listener.admit(sender, lane).token))
        async with asyncio.timeout(10):
            await receiver.served.acquire()
    for sock in streams:
        sock.close()
