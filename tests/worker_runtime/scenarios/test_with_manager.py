"""Real sidecars under the real manager: losses are repaired without anybody's help."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from replication_manager.protocol.placement import lagging
from rhino import HandoverClient
from rhino.client.overview import MemberView, fetch_overview
from rhino_pb import sidecar_pb2
from tests.rhino_core.support.health import asked
from tests.rhino_core.support.metrics import free_port
from tests.worker_runtime.cluster import Cluster, Process, changelog_bytes
from tests.worker_runtime.support.with_manager import STORE, group_of, lineage, manager, settings_of, version

READY = "ok\nsocket: ok\ndisk: ok\nindex: ok\nmanager: ok\nspace: ok\ncopies: ok\n"


async def test_a_lost_secondary_is_replaced_and_a_lost_owner_succeeded(cluster: Cluster, tmp_path: Path) -> None:
    async with asyncio.timeout(120), manager(settings_of(tmp_path)) as address:
        cluster.address = address
        a, _, _ = await cluster.start("a", "b", "c")
        async with a.attach() as client:
            await client.commit(STORE, version(1), changelog_bytes(1), [])
            first = await asyncio.to_thread(fetch_overview, address)
            secondary = first.groups[0].members[1].worker_id
            other = ({"b", "c"} - {secondary}).pop()
            await cluster.sidecars[secondary].end(signal.SIGKILL)
            assert (await client.commit(STORE, version(2), changelog_bytes(2), lineage(2))).copies >= 1
            await group_of(address, "a", other)
            assert (await client.commit(STORE, version(3), changelog_bytes(3), lineage(3))).copies == 2
        await a.end(signal.SIGKILL)
        await cluster.sidecars[secondary].start()
        await group_of(address, other, secondary)
        async with cluster.sidecars[other].attach() as client:
            reply = await client.prepare(STORE, version(3))
            assert (reply.state, reply.source) == (sidecar_pb2.PREPARE_STATE_READY, sidecar_pb2.SOURCE_REPLICA)
            assert (await client.commit(STORE, version(4), changelog_bytes(4), lineage(4))).copies == 2
        a.settings = replace(a.settings, excess_grace_s=0.2)
        await a.start()
        async with a.attach() as client:
            # It is no member any more: it asks those who are, and deletes.
            while (await client.describe()).stored_bytes:  # noqa: ASYNC110  there is no notification
                await asyncio.sleep(0.05)
            reply = await client.prepare(STORE, version(4))
            assert reply.source == sidecar_pb2.SOURCE_REMOTE


async def test_commits_go_on_at_once_when_a_secondary_has_ended_and_it_is_whole_again_when_it_is_back(
    cluster: Cluster, tmp_path: Path
) -> None:
    """Long before its lease ends: nothing is copied to the third worker meanwhile."""
    settings = replace(settings_of(tmp_path), lease_s=60.0, suspect_lease_s=60.0)
    async with asyncio.timeout(50), manager(settings) as address:
        cluster.address = address
        a, _, _ = await cluster.start("a", "b", "c")
        async with a.attach(commit_timeout_s=30) as client:
            assert (await client.commit(STORE, version(1), changelog_bytes(1), [])).copies >= 1
            first = await asyncio.to_thread(fetch_overview, address)
            secondary = first.groups[0].members[1].worker_id
            await group_of(address, "a", secondary)
            await cluster.sidecars[secondary].end(signal.SIGKILL)
            assert (await client.commit(STORE, version(2), changelog_bytes(2), lineage(2))).copies == 1
            (group,) = (await asyncio.to_thread(fetch_overview, address)).groups
            assert [(m.worker_id, m.whole) for m in group.members] == [("a", True), (secondary, False)]
            await cluster.sidecars[secondary].start()
            await group_of(address, "a", secondary)
            assert (await client.commit(STORE, version(3), changelog_bytes(3), lineage(3))).copies == 2


async def test_a_sidecar_that_is_back_is_not_ready_before_its_copies_are_whole(
    cluster: Cluster, tmp_path: Path
) -> None:
    """A rolling restart would go on, and the next restart could hit the only whole copy. The other member is stopped
    meanwhile, so that nothing is caught up.
    """
    settings = replace(settings_of(tmp_path), lease_s=60.0, suspect_lease_s=60.0, return_lease_s=60.0)
    async with asyncio.timeout(90), manager(settings) as address:
        cluster.address = address
        port = free_port()
        (a,) = await cluster.start("a")
        (b,) = await cluster.start("b", health_port=port)
        assert await asyncio.to_thread(asked, port, "/readyz") == (200, READY), "it has no groups"
        async with a.attach(commit_timeout_s=30) as client:
            await client.commit(STORE, version(1), changelog_bytes(1), [])
            await group_of(address, "a", "b")
            await b.end(signal.SIGTERM)
            for number in (2, 3, 4):
                assert (await client.commit(STORE, version(number), changelog_bytes(number), lineage(number))).copies
        assert a.process is not None
        a.process.send_signal(signal.SIGSTOP)
        try:
            await b.start()
            status, text = await asyncio.to_thread(asked, port, "/readyz")
            assert (status, "copies: groups that are not whole yet: 1, such as job/0/3" in text) == (503, True), text
            assert (await asyncio.to_thread(asked, port, "/healthz"))[0] == 200
        finally:
            a.process.send_signal(signal.SIGCONT)
        while (await asyncio.to_thread(asked, port, "/readyz"))[0] != 200:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        (group,) = (await asyncio.to_thread(fetch_overview, address)).groups
        assert [(m.worker_id, m.whole) for m in group.members] == [("a", True), ("b", True)]


async def test_a_sidecar_that_is_back_too_late_is_not_ready_before_its_replacement_is_whole(
    cluster: Cluster, tmp_path: Path
) -> None:
    """The replacement has most files, so it keeps the place. It is stopped meanwhile, to be long in coming."""
    settings = replace(settings_of(tmp_path, lease_s=60.0), return_lease_s=1.0)
    async with asyncio.timeout(90), manager(settings) as address:
        cluster.address = address
        port = free_port()
        (a,) = await cluster.start("a")
        (b,) = await cluster.start("b", health_port=port)
        async with a.attach(commit_timeout_s=30) as client:
            for number in range(1, 7):
                await client.commit(STORE, version(number), changelog_bytes(number), lineage(number))
            await group_of(address, "a", "b")
        (c,) = await cluster.start("c", catch_up_bytes_per_s=1000)
        await b.end(signal.SIGTERM)
        await until(address, lambda last: last.worker_id == "c" and last.stored_bytes >= 8000)
        assert c.process is not None
        c.process.send_signal(signal.SIGSTOP)
        try:
            await b.start()
            status, text = await asyncio.to_thread(asked, port, "/readyz")
            assert (status, "copies: groups that are not whole yet: 1" in text) == (503, True), text
        finally:
            c.process.send_signal(signal.SIGCONT)
        await until(address, lambda last: last.worker_id == "c" and last.whole)
        while (await asyncio.to_thread(asked, port, "/readyz"))[0] != 200:  # noqa: ASYNC110
            await asyncio.sleep(0.05)


async def until(address: str, holds: Callable[[MemberView], bool]) -> None:
    """Waits until the last member of the only group is so."""
    while not holds((await asyncio.to_thread(fetch_overview, address)).groups[0].members[-1]):  # noqa: ASYNC110
        await asyncio.sleep(0.05)


async def test_a_member_that_hangs_is_replaced_and_the_commit_that_waits_for_it_goes_on(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its connections stay open, so that it does not count as lost for a minute."""
    monkeypatch.setattr(lagging, "PROOF_S", 0.3)
    monkeypatch.setattr(lagging, "PATIENCE_S", 0.5)
    settings = replace(settings_of(tmp_path), lease_s=60.0, lag_cap_s=1.0)
    async with asyncio.timeout(60), manager(settings) as address:
        cluster.address = address
        a, _, _ = await cluster.start("a", "b", "c")
        async with a.attach(commit_timeout_s=30) as client:
            await client.commit(STORE, version(1), changelog_bytes(1), [])
            first = await asyncio.to_thread(fetch_overview, address)
            secondary = cluster.sidecars[first.groups[0].members[1].worker_id]
            other = ({"b", "c"} - {secondary.settings.worker_id}).pop()
            assert secondary.process is not None
            secondary.process.send_signal(signal.SIGSTOP)
            try:
                await client.commit(STORE, version(2), changelog_bytes(2), lineage(2))
                await group_of(address, "a", other)
                assert (await client.commit(STORE, version(3), changelog_bytes(3), lineage(3))).copies == 2
            finally:
                secondary.process.send_signal(signal.SIGCONT)
            assert (await client.commit(STORE, version(4), changelog_bytes(4), lineage(4))).copies == 2


async def test_a_manager_that_comes_back_finds_everything(cluster: Cluster, tmp_path: Path) -> None:
    async with asyncio.timeout(60):
        async with manager(settings_of(tmp_path)) as address:
            cluster.address = address
            a, _ = await cluster.start("a", "b")
            async with a.attach(synced=True) as client:
                await client.commit(STORE, version(1), changelog_bytes(1), [])
        async with a.attach() as client:
            await client.commit(STORE, version(2), changelog_bytes(2), lineage(2))
            async with manager(settings_of(tmp_path, address, bootstrap=False)):
                assert (await group_of(address, "a", "b")).durability == "synced"
                assert (await client.commit(STORE, version(3), changelog_bytes(3), lineage(3))).copies == 2


async def test_a_drained_worker_writes_as_a_guest_and_is_not_missed(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("handover_manager.machine.SETTLE_S", 0.2)
    late = STORE._replace(partition=4)
    async with asyncio.timeout(60), manager(settings_of(tmp_path)) as address:
        cluster.address = address
        a, _, _ = await cluster.start("a", "b", "c")
        async with a.attach() as client:
            await client.commit(STORE, version(1), changelog_bytes(1), [])
            with HandoverClient(address) as handovers:
                seen = await asyncio.to_thread(handovers.drain, "a")
                assert seen.draining
                reply = await client.commit(late, version(1), changelog_bytes(1), [])
                assert reply.copies == 2
                assert (await asyncio.to_thread(handovers.wait_until_safe, "a", timeout_s=20)).groups == 0
        overview = await asyncio.to_thread(fetch_overview, address)
        members = {g.group.partition: [m.worker_id for m in g.members] for g in overview.groups}
        assert members[3][0] == "a", "no query runs that a handover could move"
        assert set(members[3][1:]) == {"b", "c"} == set(members[4])
        await a.end(signal.SIGKILL)
        for name in ("b", "c"):
            async with cluster.sidecars[name].attach() as client:
                for store in (STORE, late):
                    found = await client.prepare(store, version(1))
                    assert (found.state, found.source) == (
                        sidecar_pb2.PREPARE_STATE_READY,
                        sidecar_pb2.SOURCE_REPLICA,
                    )


async def test_a_second_sidecar_of_one_worker_id_says_so(cluster: Cluster, tmp_path: Path) -> None:
    async with asyncio.timeout(60), manager(settings_of(tmp_path)) as address:
        cluster.address = address
        (a,) = await cluster.start("a")
        folder = tmp_path / "twin"
        folder.mkdir()
        twin = Process(replace(a.settings, data_dir=folder / "data", socket=folder / "s.sock"))
        await twin.start(wait=False)
        log = folder / "log"
        async with asyncio.timeout(30):
            while "give each one its own --worker-id" not in log.read_text():  # noqa: ASYNC110  a file
                await asyncio.sleep(0.05)
        await twin.end(signal.SIGTERM)
        lines = [line for line in log.read_text().splitlines() if "own --worker-id" in line]
        assert all("not registered: another sidecar has this worker id" in line for line in lines)
