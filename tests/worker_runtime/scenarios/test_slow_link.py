"""Real sidecars behind a slow link: commits wait as long as bytes move, and what was given up frees the link."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest

from rhino_core.setting import MIB
from tests.worker_runtime.cluster import Client, Cluster, Process, changelog_bytes, zip_bytes
from tests.worker_runtime.proxy import Proxy
from tests.worker_runtime.scenario import STORE, version

SST = "000001-x.sst"
SMALL = {"window_bytes": MIB // 4, "chunk_bytes": 64 * 1024, "memory_limit_bytes": MIB}
PATIENCE_S = 4.0


@pytest.fixture
async def proxy() -> AsyncIterator[Proxy]:
    """In front of b."""
    async with Proxy() as made:
        yield made


@pytest.fixture
async def a(tmp_path: Path, proxy: Proxy) -> AsyncIterator[Process]:
    """An owner that pushes to b through the proxy."""
    async with Cluster(tmp_path) as cluster:
        cluster.manager.seen_as = lambda worker: proxy.hide(worker) if worker.worker_id == "b" else worker
        (a,), _ = await cluster.start("a", **SMALL), await cluster.start("b", push_port=proxy.push_port, **SMALL)
        async with a.attach() as client:
            await client.commit(STORE, version(1), changelog_bytes(1), [])
            reports, key = cluster.manager.reports, ("b", STORE.group)
            await cluster.manager.until(lambda: key in reports and reports[key].whole)
        yield a


async def snapshot(client: Client, number: int, size: int, sst: str = SST) -> None:
    await client.add(STORE, f"SSTs/{sst}", os.urandom(size))
    await client.commit(STORE, version(number), zip_bytes(sst), [], end="zip")


async def test_a_commit_that_takes_twice_its_limit_passes_because_bytes_move(a: Process, proxy: Proxy) -> None:
    proxy.bytes_per_s = MIB / 2
    async with a.attach(commit_timeout_s=PATIENCE_S) as client:
        began = time.monotonic()
        await snapshot(client, 2, 4 * MIB)
        assert time.monotonic() - began > 1.5 * PATIENCE_S


async def test_a_commit_during_which_nothing_moves_fails_in_time_and_says_how_far_it_is(
    a: Process, proxy: Proxy
) -> None:
    proxy.bytes_per_s = MIB
    async with a.attach(commit_timeout_s=PATIENCE_S) as client:
        commit = asyncio.create_task(snapshot(client, 2, 8 * MIB))
        await proxy.carries(2 * MIB)
        proxy.bytes_per_s, stopped_at = 0, time.monotonic()
        with pytest.raises(grpc.aio.AioRpcError) as failed:
            await commit
        waited_s = time.monotonic() - stopped_at
    assert failed.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    text = str(failed.value.details())
    assert f"nothing has moved for {PATIENCE_S:g} s; to b: " in text
    sent, left = (int(part.split()[0]) for part in text.split("to b: ")[1].split(" sent, ")[0:2])
    assert sent > MIB
    assert left > MIB
    assert PATIENCE_S - 1 < waited_s < 3 * PATIENCE_S, "the last bytes were taken by the machine in between"


async def test_what_a_client_gives_up_no_longer_uses_the_link(a: Process, proxy: Proxy) -> None:
    proxy.bytes_per_s = MIB
    async with a.attach() as client:
        carried = proxy.carried_bytes
        commit = asyncio.create_task(snapshot(client, 2, 16 * MIB))
        await proxy.carries(2 * MIB)
        commit.cancel()
        await asyncio.gather(commit, return_exceptions=True)
        await snapshot(client, 3, MIB, "000002-y.sst")
        assert proxy.carried_bytes - carried < 8 * MIB, "the rest of the first attempt would take 14 MiB"
