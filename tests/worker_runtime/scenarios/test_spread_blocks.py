"""Block-centric placement between real sidecars: blocks are spread, Prepare fetches the rest, nothing is collected."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rhino_core.ids import StoreId, StoreVersion, Version
from rhino_pb import sidecar_pb2
from tests.worker_runtime.cluster import Client, Cluster, Process, changelog_bytes, zip_bytes

STORE = StoreId("job", 0, 3, "default")
GROUP = STORE.group
SSTS = [f"{number:06d}-u{number}.sst" for number in range(1, 9)]
SST_BYTES = 50_000
pytestmark = pytest.mark.timeout(120)


def version(number: int) -> Version:
    return Version(number, f"id{number}")


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    async with Cluster(tmp_path) as made:
        yield made


async def write(client: Client) -> None:
    """A snapshot of version 1 with eight data files, and changelogs of versions 2 to 4."""
    for name in SSTS:
        await client.add(STORE, f"SSTs/{name}", bytes(SST_BYTES))
    reply = await client.commit(STORE, version(1), zip_bytes(*SSTS), [], end="zip")
    assert reply.copies == 2
    for number in range(2, 5):
        lineage = [version(n) for n in range(1, number)]
        assert (await client.commit(STORE, version(number), changelog_bytes(number), lineage)).copies == 2


def files(process: Process) -> dict[str, int]:
    folder = process.settings.data_dir / "store" / "job" / "0" / "3" / "default"
    return {p.relative_to(folder).as_posix(): p.stat().st_size for p in folder.rglob("*") if p.is_file()}


async def test_blocks_are_spread_and_who_takes_over_fetches_the_rest(cluster: Cluster) -> None:
    a, b, c, d = await cluster.start("a", "b", "c", "d")
    async with a.attach(replicas=3, blocks=True) as client:
        await write(client)
    everything = files(a)
    assert len(everything) == len(SSTS) + 4
    others = [files(process) for process in (b, c, d)]
    assert all(sum(name in found for found in others) == 1 for name in everything)  # two copies of each
    assert sum(bool(found) for found in others) > 1
    assert all(len(found) < len(everything) for found in others)
    async with b.attach(replicas=3, blocks=True) as client:
        reply = await client.prepare(STORE, version(4))
        assert (reply.state, reply.source) == (sidecar_pb2.PREPARE_STATE_READY, sidecar_pb2.SOURCE_REMOTE)
        assert reply.fetched_bytes == sum(size for name, size in everything.items() if name not in others[0])
        assert files(b) == everything
        again = await client.prepare(STORE, version(4))
        assert again.source == sidecar_pb2.SOURCE_REPLICA


async def test_a_lost_writer_is_made_good_by_the_others_and_floors_delete_nothing(cluster: Cluster) -> None:
    a, b, c, d = await cluster.start("a", "b", "c", "d")
    async with a.attach(replicas=3, blocks=True) as client:
        await write(client)
    everything = files(a)
    cluster.manager.set_floors(StoreVersion(STORE, version(4)))
    await a.end(signal.SIGKILL)
    cluster.manager.lose("a", absent=False)
    cluster.manager.set_group(GROUP, "b", "c", "d", whole="")
    await cluster.manager.until_whole(GROUP)
    found = [files(process) for process in (b, c, d)]
    assert all(sum(name in there for there in found) >= 2 for name in everything)
    async with c.attach(replicas=3, blocks=True) as client:
        assert (await client.prepare(STORE, version(4))).state == sidecar_pb2.PREPARE_STATE_READY
    assert files(c) == everything


async def test_a_missing_block_is_unavailable_while_its_keeper_may_come_back_and_lost_after_that(
    cluster: Cluster,
) -> None:
    a, b, *rest = await cluster.start("a", "b", "c", "d", prepare_timeout_s=1.0)
    async with a.attach(replicas=3, blocks=True) as client:
        await write(client)
    for process in (a, *rest):
        await process.end(signal.SIGKILL)
    for name in "acd":
        cluster.manager.lose(name, absent=True)
    await asyncio.sleep(0.2)  # the news travels
    async with b.attach(replicas=3, blocks=True) as client:
        reply = await client.prepare(STORE, version(4))
        assert reply.state == sidecar_pb2.PREPARE_STATE_UNAVAILABLE
        cluster.manager.absent.clear()
        cluster.manager.set_floors()  # announces it
        async with asyncio.timeout(20):
            while reply.state == sidecar_pb2.PREPARE_STATE_UNAVAILABLE:
                reply = await client.prepare(STORE, version(4))
        assert reply.state == sidecar_pb2.PREPARE_STATE_LOST
