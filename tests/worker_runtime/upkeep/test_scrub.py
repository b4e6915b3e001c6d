"""Scrub with real sidecars: damage on disk is found, never served, and repaired from a peer."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Callable
from itertools import product
from pathlib import Path

import grpc
import pytest

from rhino_core.ids import StoreId, StoreVersion
from rhino_core.rpc.channel import aio_channel
from rhino_pb import peer_pb2, peer_pb2_grpc, sidecar_pb2
from tests.nightly import few
from tests.worker_runtime.cluster import Cluster, Process, changelog_bytes, zip_bytes
from tests.worker_runtime.scenario import version
from tests.worker_runtime.support.scrub import flip_a_bit, rhino, start, until
from tests.worker_runtime.support.with_manager import manager, settings_of
from worker_runtime.protocol.versions.closure import changelog_name

STORE = StoreId("job", 0, 3, "default")
SST = "SSTs/000001-x.sst"
SST_BYTES = changelog_bytes(7, 3_000_000)


async def fill(process: Process) -> None:
    """Versions 1 (snapshot), 2 and 3 (changelogs)."""
    async with process.attach() as client:
        await client.add(STORE, SST, SST_BYTES)
        await client.commit(STORE, version(1), zip_bytes("000001-x.sst"), [], end="zip")
        await client.commit(STORE, version(2), changelog_bytes(2), [version(1)])
        await client.commit(STORE, version(3), changelog_bytes(3), [version(1), version(2)])


def on_disk(process: Process, name: str) -> Path:
    return process.settings.data_dir / "store" / str(STORE) / name


def truncate(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


NAMES = (SST, "1_id1.zip", changelog_name(version(2)))
DAMAGES: tuple[Callable[[Path], None], ...] = (flip_a_bit, truncate, Path.unlink)
HARMS = sorted(product(range(3), range(3)), key=lambda harm: harm[0] != harm[1])  # first each kind and each file once


@pytest.mark.parametrize("harm", few(HARMS, 3))
async def test_damage_is_found_and_comes_back_whole(cluster: Cluster, harm: tuple[int, int]) -> None:
    damage, name = DAMAGES[harm[0]], NAMES[harm[1]]
    a, b = await cluster.start("a", "b")
    await fill(a)
    path = on_disk(b, name)
    good = path.read_bytes()
    sound = await start(b)
    assert (await until(b, lambda s: s.number == sound.number and not s.running)).errors == 0
    damage(path)
    number = (await start(b)).number
    found = await until(b, lambda s: s.number == number and not s.running and s.errors == s.repaired)
    assert (found.errors, found.checked_files, found.checked_bytes) == (1, 4, found.total_bytes)
    assert found.finished_ms >= found.started_ms
    assert path.read_bytes() == good
    async with b.attach() as client:
        assert (await client.prepare(STORE, version(3))).state == sidecar_pb2.PREPARE_STATE_READY


async def test_found_damage_is_not_served_while_nobody_can_repair_it(cluster: Cluster) -> None:
    a, b, c = await cluster.start("a", "b", "c")
    await fill(a)
    await cluster.manager.until(lambda: bool(cluster.manager.reports["b", STORE.group].newest_held))
    await a.end(signal.SIGKILL)
    cluster.manager.lose("a", absent=True)
    flip_a_bit(on_disk(b, SST))  # what Prepare does not see: it reads changelogs and zips only
    number = (await start(b)).number
    found = await until(b, lambda s: s.number == number and not s.running)
    assert (found.errors, found.repaired) == (1, 0)
    async with b.attach() as client, c.attach() as at_c:
        assert SST not in await client.names(STORE)
        for asking in (client, at_c):
            reply = await asking.prepare(STORE, version(3))
            assert reply.state == sidecar_pb2.PREPARE_STATE_UNAVAILABLE
    again = await until(b, lambda s: (s.errors, s.repaired) == (1, 0))
    assert (await start(b)).number == again.number + 1
    assert (await until(b, lambda s: s.number > again.number and not s.running)).errors == 1, "it is still missing"
    await a.start()
    cluster.manager.set_group(STORE.group, "a", "b", whole="a")
    await until(b, lambda s: s.errors == s.repaired)
    assert on_disk(b, SST).read_bytes() == SST_BYTES


async def test_a_slow_scrub_goes_on_where_it_was_after_kill_9(cluster: Cluster) -> None:
    """3 MB at 1 MB/s takes three seconds; the files before the SST are not read again."""
    (a,) = await cluster.start("a", scrub_period_s=1.0, scrub_bytes_per_s=0)
    async with a.attach(replicas=0) as client:
        for number in range(1, 8):
            lineage = [version(n) for n in range(1, number)]
            await client.commit(STORE, version(number), changelog_bytes(number, 400_000), lineage)
    await a.end(signal.SIGKILL)
    object.__setattr__(a.settings, "scrub_bytes_per_s", 1_000_000)
    await a.start()
    first = await until(a, lambda s: s.running and s.checked_files >= 3)
    assert not first.full_pace
    await a.end(signal.SIGKILL)
    await a.start()
    second = await until(a, lambda s: s.number == first.number and s.checked_files >= 1)
    assert second.checked_files >= first.checked_files - 3, "the position is at most a second old"
    ended = await until(a, lambda s: s.number > first.number or not s.running)
    if ended.number == first.number:
        assert (ended.checked_files, ended.checked_bytes) == (7, 7 * 400_000)


async def test_damage_that_no_floor_asks_for_any_more_is_no_error_for_ever(cluster: Cluster) -> None:
    (a,) = await cluster.start("a")
    async with a.attach(replicas=0) as client:
        await client.add(STORE, SST, SST_BYTES)
        await client.commit(STORE, version(1), zip_bytes("000001-x.sst"), [], end="zip")
        await client.add(STORE, "SSTs/000002-x.sst", b"sst")
        await client.commit(STORE, version(2), zip_bytes("000002-x.sst"), [], end="zip")
        flip_a_bit(on_disk(a, SST))
        truncate(on_disk(a, "1_id1.zip"))
        await start(a)
        found = await until(a, lambda s: not s.running)
        assert (found.errors, found.repaired) == (2, 0), "there is no other copy"
        await a.end(signal.SIGKILL)
    await a.start()
    assert (await until(a, lambda s: True)).errors == 2
    cluster.manager.set_floors(StoreVersion(STORE, version(2)))
    await until(a, lambda s: (s.errors, s.repaired) == (2, 2))


async def test_none_begins_by_itself_when_it_is_off(cluster: Cluster) -> None:
    a, b = await cluster.start("a", "b", scrub_period_s=0.05, scrub_bytes_per_s=0)
    await fill(a)
    await cluster.manager.until(lambda: bool(cluster.manager.reports["b", STORE.group].newest_held))
    flip_a_bit(on_disk(b, SST))
    beats = cluster.manager.beats
    await cluster.manager.until(lambda: cluster.manager.beats >= beats + 10)
    assert (await until(b, lambda s: True)).number == 0
    await start(b)
    assert (await until(b, lambda s: s.number == 1 and not s.running)).errors == 1


async def test_the_command_tells_sound_from_repaired_from_lost(cluster: Cluster, tmp_path: Path) -> None:
    async with asyncio.timeout(120), manager(settings_of(tmp_path)) as address:
        cluster.address = address
        a, b = await cluster.start("a", "b")
        await fill(a)
        command = ("scrub", "--manager", address, "--wait", "--json")
        code, out, _ = await rhino(*command)
        assert (code, [w["errors"] for w in json.loads(out)["workers"]]) == (0, [0, 0])
        flip_a_bit(on_disk(b, SST))
        code, out, err = await rhino(*command, "--worker", "b")
        assert (code, [(w["worker_id"], w["errors"], w["repaired"]) for w in json.loads(out)["workers"]]) == (
            5,
            [("b", 1, 1)],
        )
        assert "b" in err
        flip_a_bit(on_disk(a, SST))
        flip_a_bit(on_disk(b, SST))
        code, out, _ = await rhino(*command, "--repair-wait-s", "0.5")
        # Whoever is read first asks the other one for a good copy, which may find the damage there before its scrub.
        reported = [(w["errors"], w["repaired"]) for w in json.loads(out)["workers"]]
        assert (code, reported) in [(1, [(1, 0), (1, 0)]), (1, [(1, 0), (0, 0)]), (1, [(0, 0), (1, 0)])]
        code, out, _ = await rhino("status", "--manager", address, "--json")
        assert [w["scrub"]["errors"] for w in json.loads(out)["workers"]] == [errors for errors, _ in reported]
        code, _, err = await rhino(*command, "--worker", "nobody")
        assert code == 3
        assert "nobody" in err
        await b.end(signal.SIGKILL)
        assert b.worker is not None
        async with aio_channel(b.worker.peer_address) as channel:
            with pytest.raises(grpc.aio.AioRpcError):
                await peer_pb2_grpc.PeerStub(channel).StartScrub(peer_pb2.StartScrubRequest(), timeout=5)
