"""Real sidecars and the real manager: a live worker that cannot reach another one."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import grpc
import pytest

from rhino.client.overview import fetch_overview
from rhino_core.errors import UnavailableError
from rhino_core.ids import Version
from rhino_core.setting import MIB
from tests.worker_runtime import cluster as cluster_module
from tests.worker_runtime.cluster import MAIN, Cluster, Process, changelog_bytes
from tests.worker_runtime.support.with_manager import STORE, group_of, lineage, manager, settings_of, version
from tests.worker_runtime.tmpfs import fill, tmpfs

FENCED = "fenced"  # this file in a worker's folder names those to whom its pushes do not get through
FIREWALL = f"""
import asyncio, json, pathlib, sys
from worker_runtime.push.sender import Link
from worker_runtime.push.sockets import CONNECT_TIMEOUT_S
_connect = Link._connect
_fenced = pathlib.Path(json.loads(sys.argv[1])["data_dir"]).parent / "{FENCED}"
async def connect(self, peer):
    if _fenced.exists() and peer.worker_id in _fenced.read_text().split():
        await asyncio.sleep(CONNECT_TIMEOUT_S)  # as when packets are dropped
        raise TimeoutError("no answer")
    return await _connect(self, peer)
Link._connect = connect
"""


@pytest.fixture
async def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Cluster]:
    monkeypatch.setattr(cluster_module, "MAIN", FIREWALL + MAIN)
    async with Cluster(tmp_path) as made:
        yield made


def fence(sender: Process, *receivers: str) -> None:
    """Nothing that the sender pushes reaches these; all else does."""
    (sender.settings.data_dir.parent / FENCED).write_text(" ".join(receivers))


async def chain(address: str) -> list[str]:
    """Members of the one group, the owner first; empty while nobody has named it.

    A connection may take longer than its limit of a second on a busy machine: the manager is asked again.
    """
    while True:
        try:
            groups = (await asyncio.to_thread(fetch_overview, address)).groups
        except UnavailableError:
            continue
        return [m.worker_id for m in groups[0].members] if groups else []


async def test_commits_go_past_a_member_to_which_the_link_is_cut(cluster: Cluster, tmp_path: Path) -> None:
    settings = replace(settings_of(tmp_path, lease_s=5.0), lag_cap_s=300.0)
    async with asyncio.timeout(100), manager(settings) as address:
        cluster.address = address
        a, *_ = await cluster.start("a", "b", "c")
        async with a.attach(replicas=2) as client:
            await client.prepare(STORE, version(1))  # names the group, and connects to nobody
            _, first, _ = await chain(address)
            fence(a, first)
            took_s = []
            for number in range(1, 6):
                began = time.monotonic()
                content = changelog_bytes(number)
                assert (await client.commit(STORE, version(number), content, lineage(number))).copies >= 2
                took_s.append(time.monotonic() - began)
        # A commit is helped after a second. The lag cap would take five minutes. Machines of tests are busy.
        assert took_s[0] < 10.0, f"commits took {took_s} s"
        assert min(took_s[1:]) < 1.0, f"only the first one waits for the member that is not reached: {took_s} s"
        await group_of(address, "a", *[name for name in await chain(address) if name != "a"])


async def test_the_groups_of_a_worker_whose_pushes_reach_nobody_go_to_another(cluster: Cluster, tmp_path: Path) -> None:
    settings = replace(settings_of(tmp_path, lease_s=5.0), lag_cap_s=300.0)
    async with asyncio.timeout(100), manager(settings) as address:
        cluster.address = address
        a, *_ = await cluster.start("a", "b", "c")
        fence(a, "b", "c")
        async with a.attach(replicas=2, commit_timeout_s=60.0) as client:
            began = time.monotonic()
            commit = asyncio.create_task(client.commit(STORE, version(1), changelog_bytes(1), []))
            while (owner := next(iter(await chain(address)), "a")) == "a":  # noqa: ASYNC110  there is no notification
                await asyncio.sleep(0.05)
            moved_s = time.monotonic() - began
            assert moved_s < 30.0, f"the owner was followed after {moved_s} s"
            async with cluster.sidecars[owner].attach(replicas=2) as other:
                reply = await other.commit(STORE, Version(1, "other"), b"1", [])
                assert reply.copies >= 2
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await commit
            assert refused.value.code() is grpc.StatusCode.FAILED_PRECONDITION, "the task is to run elsewhere"
            assert f"owned by {owner}" in str(refused.value.details())
            assert time.monotonic() - began < 55.0


async def test_an_owner_with_a_full_disk_is_followed_within_seconds(cluster: Cluster, tmp_path: Path) -> None:
    with tmpfs(tmp_path / "small", 48) as disk:
        async with asyncio.timeout(100), manager(settings_of(tmp_path)) as address, Cluster(tmp_path) as others:
            cluster.address = others.address = address
            (disk / "node").mkdir()
            others.folder = disk / "node"
            await cluster.start("b", "c")
            (a,) = await others.start("a", reserve_bytes=8 * MIB)
            async with a.attach(replicas=2) as client:
                await client.commit(STORE, version(1), changelog_bytes(1), [])
                await group_of(address, *await chain(address))
                fill(disk, 6 * MIB)
                began = time.monotonic()
                while (await chain(address))[0] == "a":  # noqa: ASYNC110  there is no notification
                    await asyncio.sleep(0.02)
                assert time.monotonic() - began < 10.0
            owner, *_ = await chain(address)
            async with cluster.sidecars[owner].attach(replicas=2) as other:
                began = time.monotonic()
                assert (await other.commit(STORE, version(2), changelog_bytes(2), lineage(2))).copies == 2
                assert time.monotonic() - began < 10.0
