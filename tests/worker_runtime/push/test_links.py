"""To whom there are links and connections: not to those that have gone, however many these are."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from rhino_core.errors import RhinoError
from rhino_core.ids import Epoch, GroupId, JobSettings, Lane, Member, ReplicaGroup, Worker
from rhino_core.retry import LINK_ABSENT_S_MAX
from rhino_core.security.transport import PLAIN
from tests.simulation.sizes import sizes
from tests.worker_runtime.scenario import sst, worker
from worker_runtime.fetch import peers
from worker_runtime.fetch.peers import Peers
from worker_runtime.manager_link.directory import Directory
from worker_runtime.protocol import events as ev
from worker_runtime.push.links import STRANGERS_MAX, Links
from worker_runtime.push.opening import Opening
from worker_runtime.push.sender import Link
from worker_runtime.replication import Replication
from worker_runtime.statistics import Statistics
from worker_runtime.storage.store import Store

GROUP = GroupId("job", 0, 0)


@pytest.fixture
async def replication(tmp_path: Path) -> AsyncIterator[Replication]:
    store = Store.open("me", tmp_path, 0)
    yield Replication(worker("me"), store)
    store.close()


def closed_port() -> int:
    """A port on which no process listens."""
    with socket.create_server(("127.0.0.1", 0)) as sock:
        port: int = sock.getsockname()[1]
    return port


def somebody(number: int, port: int) -> Worker:
    return Worker(f"w{number}", f"incarnation{number}", "127.0.0.1", f"127.0.0.1:{port}")


async def settled() -> int:
    """The number of tasks, once those that were cancelled have ended."""
    for _ in range(50):
        await asyncio.sleep(0)
    return len(asyncio.all_tasks())


async def test_links_to_workers_that_have_gone_end(replication: Replication) -> None:
    port = closed_port()
    directory = Directory(replication)
    async with asyncio.TaskGroup() as tasks:
        links = Links(replication, Statistics(), directory, Opening(), 4096, tasks)
        alone = await settled()
        for number in range(30):
            one = somebody(number, port)
            directory.update([one], [])
            for lane in Lane:
                links.connect(one, lane)
        assert len(links) == 60
        directory.update([somebody(29, port)], [somebody(number, port) for number in range(29)])
        links.tidy()
        assert len(links) == 60, "it may have been a moment's loss"
        links.tidy()
        assert len(links) == 2
        async with asyncio.timeout(20):
            while await settled() > alone + 2 * 3:  # noqa: ASYNC110  attempts to connect come to their end
                await asyncio.sleep(0.05)
        directory.update([somebody(0, port)], [somebody(29, port)])
        assert len(links) == 4, "a worker that comes back is linked again: it may lack files"
        directory.update([], [])
        links.tidy()
        links.tidy()
        assert len(links) == 0


async def test_few_of_those_that_have_gone_are_remembered(
    replication: Replication, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that comes back may lack files."""
    monkeypatch.setattr("worker_runtime.push.links.STRANGERS_MAX", 10)
    port, directory = closed_port(), Directory(replication)
    async with asyncio.TaskGroup() as tasks:
        links = Links(replication, Statistics(), directory, Opening(), 4096, tasks)
        for number in range(30):
            directory.update([somebody(number, port)], [])
            links.connect(somebody(number, port), Lane.BULK)
        directory.update([], [])
        links.tidy()
        links.tidy()
        assert len(links) == 0
        assert sizes([links])["Links._asked_for"] == 10


async def test_links_to_members_of_groups_stay(replication: Replication) -> None:
    one = somebody(1, closed_port())
    directory = Directory(replication)
    members = (Member(replication.me, True), Member(one, True))
    running = asyncio.create_task(replication.run())
    await asyncio.sleep(0)
    async with asyncio.TaskGroup() as tasks:
        links = Links(replication, Statistics(), directory, Opening(), 4096, tasks)
        replication.bind(links, None, _NoCatchUp(), _NoManager())  # type: ignore[arg-type]
        replication.post(ev.GroupAdopted(ReplicaGroup(GROUP, Epoch(1, 1), members, 1, JobSettings())))
        links.connect(one, Lane.COMMIT)
        for _ in range(3):
            links.tidy()
        assert len(links) == 1, "it is absent, and is to come back"
        replication.post(ev.GroupLeft(GROUP))
        links.tidy()
        links.tidy()
        assert len(links) == 0
    running.cancel()


class _NoCatchUp:
    def start(self, order: ev.StartCatchUp) -> None: ...


class _NoManager:
    def ask(self, group: GroupId) -> None: ...
    def changed(self, group: GroupId) -> None: ...


async def test_strangers_are_not_linked_until_the_manager_names_them(replication: Replication) -> None:
    port = closed_port()
    directory = Directory(replication)
    async with asyncio.TaskGroup() as tasks:
        links = Links(replication, Statistics(), directory, Opening(), 4096, tasks)
        for number in range(STRANGERS_MAX + 50):
            links.connect(somebody(number, port), Lane.BULK)
        assert len(links) == 0
        links.offer(ev.OfferFile(somebody(7, port), sst(1), Epoch(1, 1), (), Lane.BULK))
        links.withdraw(ev.WithdrawOffer("w7", sst(1).store, sst(1).name, Lane.BULK))
        last = somebody(STRANGERS_MAX + 49, port)
        directory.update([somebody(0, port), last], [])
        assert len(links) == 1, "the oldest were forgotten"
        directory.update([], [])
        links.tidy()
        links.tidy()


class Attempts(Link):
    """Counts them."""

    made = 0

    async def _session(self, peer: Worker) -> None:
        self.made += 1
        raise RhinoError("not there")


async def test_attempts_become_rare_while_a_worker_is_absent(
    replication: Replication, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []

    async def wait(event: asyncio.Event, timeout_s: float) -> bool:
        pauses.append(timeout_s)
        await asyncio.sleep(0)
        return event.is_set()

    monkeypatch.setattr("worker_runtime.push.sender._wait", wait)
    live = False
    link = Attempts(replication, Statistics(), Opening(), somebody(1, 1), Lane.COMMIT, 4096)
    running = asyncio.create_task(link.run(lambda _: live))
    while link.made < 20:  # noqa: ASYNC110
        await asyncio.sleep(0)
    assert max(pauses) == LINK_ABSENT_S_MAX
    live = True
    link.retry()
    made = link.made
    while link.made < made + 5:  # noqa: ASYNC110
        await asyncio.sleep(0)
    assert pauses[-1] <= 1.0
    running.cancel()


async def test_who_comes_back_to_its_address_is_not_kept_waiting(
    replication: Replication, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next attempt to an absent worker may be half a minute away."""
    tried: list[str] = []
    monkeypatch.setattr(Link, "retry", lambda link: tried.append(link.peer.worker_id))
    one, other = (somebody(number, closed_port()) for number in (1, 2))
    directory = Directory(replication)
    async with asyncio.TaskGroup() as tasks:
        links = Links(replication, Statistics(), directory, Opening(), 4096, tasks)
        directory.update([one, other], [])
        for worker_ in (one, other):
            links.connect(worker_, Lane.COMMIT)
        directory.update([other], [one])
        assert not tried
        directory.update([one, other], [])
        assert tried == ["w1"]
        directory.update([], [])
        links.tidy()
        links.tidy()


async def test_connections_to_addresses_that_nobody_has_any_more_are_closed(
    replication: Replication, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peers, "UNUSED_S", -1.0)
    directory = Directory(replication)
    calls = Peers(replication, Statistics(), directory, PLAIN)
    port = closed_port()
    for number in range(20):
        moved = replace(somebody(1, port), peer_address=f"127.0.0.{number + 1}:{port}")
        directory.update([moved], [])
        with pytest.raises(RhinoError):
            await calls.inventory(moved, GROUP)
        await calls.tidy()
        assert len(calls._channels) == 1
    directory.update([], [])
    await calls.tidy()
    assert not calls._channels
