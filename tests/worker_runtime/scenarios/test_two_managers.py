"""Two managers by mistake, each with a journal of its own, and real sidecars that go from one to the other.

As when a manager is started a second time on another node behind the same name. Generations decide: whoever is asked
later issues higher epochs, so that nothing the other one had decided holds any longer.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from rhino.client.overview import GroupView, fetch_overview
from rhino_core.ids import Epoch, StoreId, Version
from rhino_pb import sidecar_pb2
from tests.worker_runtime.cluster import Client, Cluster, changelog_bytes
from tests.worker_runtime.support.with_manager import manager, settings_of, version

STORE = StoreId("job", 0, 3, "default")
READY, REPLICA = sidecar_pb2.PREPARE_STATE_READY, sidecar_pb2.SOURCE_REPLICA
HERE = {sidecar_pb2.SOURCE_LOCAL, REPLICA}
pytestmark = pytest.mark.timeout(120)


class Name:
    """One address that leads to one manager or the other."""

    def __init__(self, target: str) -> None:
        self.address = ""
        self._target = target
        self._writers: set[asyncio.StreamWriter] = set()

    def lead_to(self, target: str) -> None:
        """Connections are cut; new ones go there."""
        self._target = target
        for writer in self._writers:
            writer.transport.abort()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host, _, port = self._target.rpartition(":")
        behind_reader, behind_writer = await asyncio.open_connection(host, int(port))
        both = {writer, behind_writer}
        self._writers |= both
        pumps = (_pump(reader, behind_writer), _pump(behind_reader, writer))
        await asyncio.gather(*pumps, return_exceptions=True)
        self._writers -= both


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    writer.transport.abort()


@asynccontextmanager
async def name_of(target: str) -> AsyncIterator[Name]:
    name = Name(target)
    server = await asyncio.start_server(name.serve, "127.0.0.1", 0)
    name.address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield name
    finally:
        server.close()
        name.lead_to("")


@asynccontextmanager
async def two_managers(folder: Path, lease_s: float = 2.0) -> AsyncIterator[tuple[str, str]]:
    for one in ("first", "second"):
        (folder / one).mkdir()
    settings = [settings_of(folder / one, lease_s=lease_s) for one in ("first", "second")]
    async with manager(settings[0]) as first, manager(settings[1]) as second:
        yield first, second


async def whole_group(address: str, since: Epoch | None = None) -> GroupView | None:
    """The group there, if it has two members, both live and whole, under no lower epoch."""
    overview = await asyncio.to_thread(fetch_overview, address)
    for group in overview.groups:
        whole = [member for member in group.members if member.whole and member.state == "live"]
        if len(whole) == len(group.members) == 2 and (since is None or group.epoch >= since):
            return group
    return None


class Query:
    """Commits one version after the other, as a query does, whoever the manager is."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.number = 0

    async def commit(self) -> int:
        """Copies that were there when it returned."""
        self.number += 1
        lineage = [version(number) for number in range(1, self.number)]
        content = changelog_bytes(self.number)
        return (await self._client.commit(STORE, version(self.number), content, lineage)).copies

    async def until_whole(self, address: str, since: Epoch | None = None) -> GroupView:
        """Commits until the manager there has the group whole."""
        async with asyncio.timeout(30):
            while (group := await whole_group(address, since)) is None:
                assert await self.commit() >= 1
                await asyncio.sleep(0.1)
            return group


def members_of(group: GroupView) -> list[str]:
    return [member.worker_id for member in group.members]


async def test_all_go_to_the_other_one_and_back(cluster: Cluster, tmp_path: Path) -> None:
    """The lease is long: no worker of a busy machine comes so late that it is rightly replaced."""
    async with two_managers(tmp_path, lease_s=20) as (first, second), name_of(first) as name:
        cluster.address = name.address
        a, _, _ = await cluster.start("a", "b", "c")
        async with a.attach(commit_timeout_s=30) as client:
            query = Query(client)
            group = await query.until_whole(first)
            for target in (second, first, second):
                name.lead_to(target)
                assert await query.commit() >= 1, "the group is known"
                moved = await query.until_whole(target, since=group.epoch)
                assert set(members_of(moved)) == set(members_of(group)), "no copy is moved"
                group = moved
                assert await query.commit() == 2
        await a.end(signal.SIGKILL)
        (other,) = set(members_of(group)) - {"a"}
        async with cluster.sidecars[other].attach() as client:
            found = await client.prepare(STORE, version(query.number))
            assert (found.state, found.source) == (READY, REPLICA)


@pytest.mark.parametrize("winner", ["first", "second"])
async def test_each_has_some_workers_for_a_while(cluster: Cluster, tmp_path: Path, winner: str) -> None:
    """The owner stays with the first manager, the others go to the second, where a task runs as well."""
    async with two_managers(tmp_path) as (first, second), name_of(first) as ours, name_of(first) as theirs:
        won = {"first": first, "second": second}[winner]
        cluster.address = ours.address
        (a,) = await cluster.start("a")
        cluster.address = theirs.address
        b, c = await cluster.start("b", "c")
        async with a.attach(commit_timeout_s=30) as client:
            query = Query(client)
            before = await query.until_whole(first)
            assert members_of(before)[0] == "a"
            theirs.lead_to(second)
            other = b if members_of(before)[1] == "b" else c
            async with other.attach(commit_timeout_s=30) as speculative:
                found = await speculative.prepare(STORE, version(query.number))
                assert (found.state, found.source) == (READY, REPLICA)
                rival = Version(query.number + 1, "rival")
                lineage = [version(number) for number in range(1, query.number + 1)]
                await speculative.commit(STORE, rival, changelog_bytes(99), lineage)
            for _ in range(3):
                assert await query.commit() >= 1
            for name in (ours, theirs):
                name.lead_to(won)
            after = await query.until_whole(won, since=before.epoch)
            assert await query.commit() == 2
        for worker_id in members_of(after):
            async with cluster.sidecars[worker_id].attach() as client:
                for newest in (version(query.number), rival):
                    found = await client.prepare(STORE, newest)
                    assert found.state == READY, (worker_id, newest, found.message)
                    assert found.source in HERE, (worker_id, newest)
