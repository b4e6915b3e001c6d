"""Push streams end with the certificates of their two ends."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from rhino_core.errors import AccessDeniedError
from rhino_core.ids import Lane, Worker
from rhino_core.security.identity import Identity, Role
from tests.worker_runtime.scenario import worker
from worker_runtime.manager_link.directory import Directory
from worker_runtime.protocol import events as ev
from worker_runtime.protocol.credit import GrantPool
from worker_runtime.push import opening as opening_module
from worker_runtime.push import receiver as receiver_module
from worker_runtime.push.connection import Connection
from worker_runtime.push.links import Links
from worker_runtime.push.opening import Opening
from worker_runtime.push.receiver import Receiver
from worker_runtime.replication import Replication
from worker_runtime.statistics import Statistics
from worker_runtime.storage.store import Store

OTHER = worker("other")


@pytest.fixture
async def replication(tmp_path: Path) -> AsyncIterator[Replication]:
    store = Store.open("me", tmp_path, 0)
    yield Replication(worker("me"), store)
    store.close()


class Certificate:
    """That of a sender."""

    counts = True

    def check(self) -> None:
        if not self.counts:
            raise AccessDeniedError("the certificate has ended")


@pytest.mark.parametrize("lane", Lane)
async def test_a_stream_ends_when_the_certificate_of_its_sender_counts_no_more(
    replication: Replication, lane: Lane, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(receiver_module, "TAKE_BACK_S", 0.01)
    receiver = Receiver(replication, Statistics(), GrantPool(1 << 20, 1 << 20))
    certificate = Certificate()
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(60):
        looking = asyncio.create_task(receiver.run())
        serving = asyncio.create_task(receiver.serve(Connection(ours, check=certificate.check), "other", lane))
        assert await loop.sock_recv(theirs, 4096), "the credit of an open stream"
        await asyncio.sleep(0.1)  # ten looks
        assert not serving.done()
        certificate.counts = False
        assert await loop.sock_recv(theirs, 4096) == b""
        await serving
    looking.cancel()
    theirs.close()
    (line,) = [record for record in caplog.records if "certificate of its sender" in record.message]
    assert (vars(line)["peer"], vars(line)["error"]) == ("other", "the certificate has ended")


class Renewed:
    """A transport with certificates, which may be renewed."""

    def __init__(self) -> None:
        self.edition = 1
        self.identity = Identity("c", Role.WORKER, "me")


class Pairs(Opening):
    """Opens pairs of sockets."""

    def __init__(self, transport: Any) -> None:
        super().__init__(transport)
        self.opened: asyncio.Queue[socket.socket] = asyncio.Queue()

    async def connect(self, me: Worker, peer: Worker, lane: Lane) -> Connection:
        ours, theirs = socket.socketpair()
        theirs.setblocking(False)
        self.opened.put_nowait(theirs)
        return Connection(ours)


class NoManager:
    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: None


@pytest.mark.parametrize("why", ["new certificate", "age"])
async def test_a_sender_opens_a_stream_anew_so_that_the_certificate_of_the_receiver_is_checked_again(
    replication: Replication, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    transport = Renewed()
    pairs = Pairs(transport)
    posted: list[ev.Event] = []
    replication.subscribe(posted.append)
    directory = Directory(replication)
    directory.update([OTHER], [])
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
        links = Links(replication, Statistics(), directory, pairs, 4096, tasks)
        links.connect(OTHER, Lane.COMMIT)
        first = await pairs.opened.get()
        reading = asyncio.create_task(loop.sock_recv(first, 1))
        links.tidy()
        await asyncio.sleep(0.1)
        assert not reading.done()
        if why == "age":
            monkeypatch.setattr(opening_module, "STREAM_S", 0.0)
        else:
            transport.edition = 2
        links.tidy()
        assert await reading == b""
        second = await pairs.opened.get()
        monkeypatch.undo()
        links.tidy()
        await asyncio.sleep(0.1)
        assert pairs.opened.empty(), "the new stream is young, and of the new certificate"
        for task in links._running.values():
            task.cancel()
    first.close()
    second.close()


async def test_streams_without_certificates_have_no_age(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening_module, "STREAM_S", 0.0)
    opening = Opening()
    assert not opening.is_due(opening.moment)
