"""Branches: files of one job as files of another, by real sidecars under the real manager."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import grpc
import pytest

from rhino import HandoverClient
from rhino.client.overview import GroupView, fetch_overview
from rhino_core.errors import RhinoError
from rhino_core.ids import StoreId, StoreVersion, Version
from rhino_core.rpc.channel import aio_channel
from rhino_core.rpc.convert import group_to_pb, store_to_pb, store_version_to_pb
from rhino_pb import peer_pb2, peer_pb2_grpc, sidecar_pb2
from tests.nightly import few
from tests.worker_runtime.cluster import Client, Cluster, Process, changelog_bytes, zip_bytes
from tests.worker_runtime.support.resume import statistics
from tests.worker_runtime.support.scrub import flip_a_bit
from tests.worker_runtime.support.scrub import start as start_scrub
from tests.worker_runtime.support.scrub import until as until_scrub
from tests.worker_runtime.support.with_manager import lineage, manager, settings_of, version

STORE = StoreId("job", 0, 3, "default")
TWIN = STORE._replace(job="twin")
SST = "SSTs/000001-u.sst"
CONTENT = os.urandom(3_000_000)
NEWEST = 4
BORN = StoreId("twin", 0, 3, "default")  # operator 0 of the new query is born
MOVED = STORE._replace(job="twin", operator=1)
READY = sidecar_pb2.PREPARE_STATE_READY


@dataclass
class Scene:
    cluster: Cluster
    address: str

    def __getitem__(self, name: str) -> Process:
        return self.cluster.sidecars[name]

    async def group(self, job: str) -> GroupView:
        groups = (await asyncio.to_thread(fetch_overview, self.address)).groups
        (found,) = (group for group in groups if group.group.job == job)
        return found

    async def members(self, job: str) -> list[str]:
        return [member.worker_id for member in (await self.group(job)).members]

    async def until_whole(self, job: str, count: int = 2) -> None:
        async with asyncio.timeout(30):
            while sum(m.whole for m in (await self.group(job)).members) < count:  # noqa: ASYNC110
                await asyncio.sleep(0.05)

    def forget(self, job: str) -> None:
        with HandoverClient(self.address) as client:
            client.forget_job(job, now=True)


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    async with AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(Cluster(tmp_path))
        cluster.address = await stack.enter_async_context(manager(settings_of(tmp_path)))
        yield Scene(cluster, cluster.address)


async def write(client: Client) -> None:
    """A snapshot with one large file at version 3, and one changelog after it."""
    for number in (1, 2, 3):
        await client.commit(STORE, version(number), changelog_bytes(number), lineage(number))
    await client.add(STORE, SST, CONTENT)
    await client.commit(STORE, version(3), zip_bytes(SST.removeprefix("SSTs/")), [], end="zip")
    await client.commit(STORE, version(NEWEST), changelog_bytes(NEWEST), [version(3)])


async def branch(process: Process, number: int = NEWEST, job: str = TWIN.job) -> peer_pb2.BranchReply:
    assert process.worker is not None
    async with aio_channel(process.worker.peer_address) as channel:
        source = store_version_to_pb(StoreVersion(STORE, version(number)))
        link = peer_pb2.StoreLink(source=source, target=store_to_pb(STORE._replace(job=job)))
        request = peer_pb2.BranchRequest(links=[link], timeout_s=10)
        reply: peer_pb2.BranchReply = await peer_pb2_grpc.PeerStub(channel).Branch(request, timeout=30)
        return reply


async def restructure(
    process: Process, target: StoreId = MOVED, born: StoreId = BORN, number: int = NEWEST
) -> peer_pb2.BranchReply:
    """The operator of `STORE` becomes operator 1 of the new query, and its operator 0 begins empty."""
    assert process.worker is not None
    async with aio_channel(process.worker.peer_address) as channel:
        source = store_version_to_pb(StoreVersion(STORE, version(number)))
        request = peer_pb2.BranchRequest(
            links=[peer_pb2.StoreLink(source=source, target=store_to_pb(target))],
            empty=[
                peer_pb2.EmptyStore(
                    version=store_version_to_pb(StoreVersion(born, Version(number, "born"))),
                    like=group_to_pb(STORE.group),
                )
            ],
            timeout_s=10,
        )
        reply: peer_pb2.BranchReply = await peer_pb2_grpc.PeerStub(channel).Branch(request, timeout=30)
        return reply


def path_of(process: Process, store: StoreId, name: str) -> Path:
    return process.settings.data_dir / "store" / str(store) / name


def same_file(process: Process, name: str) -> bool:
    return os.path.samefile(path_of(process, STORE, name), path_of(process, TWIN, name))


async def check_opens(process: Process, store: StoreId, number: int = NEWEST) -> sidecar_pb2.PrepareReply:
    async with process.attach() as client:
        reply = await client.prepare(store, version(number))
        assert reply.state == READY, reply.message
        assert client.path(store, SST).read_bytes() == CONTENT
        names = {SST, "3_id3.zip", f"{number}_id{number}.changelog"}
        assert names <= set(await client.names(store))
        return reply


async def test_a_branch_is_made_of_links_on_all_members_and_no_bytes_travel(scene: Scene) -> None:
    """Two other workers are free: they store nothing yet."""
    a, *_ = await scene.cluster.start("a", "b", "c", "d")
    async with a.attach() as client:
        await write(client)
    await scene.until_whole("job")
    b = scene[(await scene.members("job"))[1]]
    before = [(await statistics(process)).replicated_bytes_in for process in (a, b)]
    reply = await branch(a)
    assert (reply.files, reply.linked_bytes > len(CONTENT)) == (3, True)
    for process in (a, b):
        assert same_file(process, SST)
        assert same_file(process, "4_id4.changelog")
    assert [(await statistics(process)).replicated_bytes_in for process in (a, b)] == before
    assert (await check_opens(a, TWIN)).source == sidecar_pb2.SOURCE_LOCAL
    assert (await check_opens(b, TWIN)).source == sidecar_pb2.SOURCE_REPLICA
    assert await scene.members("twin") == await scene.members("job")


async def test_either_job_is_forgotten_without_harm_to_the_other(scene: Scene) -> None:
    a, b = await scene.cluster.start("a", "b")
    async with a.attach() as client:
        await write(client)
        await scene.until_whole("job")
        await branch(a)
        await branch(a, job="third")
        async with asyncio.timeout(30):
            while path_of(a, STORE, SST).exists() or path_of(b, STORE, SST).exists():
                try:
                    await asyncio.to_thread(scene.forget, "job")
                except RhinoError:  # the manager has just started: it refuses for ten seconds
                    await asyncio.sleep(0.5)
        await check_opens(a, TWIN)
        await asyncio.to_thread(scene.forget, "third")
        await client.commit(TWIN, version(5), changelog_bytes(5), [version(3), version(4)])
    await check_opens(b, TWIN, 5)


async def test_a_branch_of_an_older_version_that_is_still_stored(scene: Scene) -> None:
    a, _ = await scene.cluster.start("a", "b")
    async with a.attach() as client:
        await write(client)
        assert (await branch(a, 2)).files == 2
        assert (await client.prepare(TWIN, version(2))).state == READY
        assert (await client.prepare(TWIN, version(NEWEST))).state != READY
        # The branch goes on by itself, with the same version number and another id.
        other = Version(3, "other")
        assert (await client.commit(TWIN, other, changelog_bytes(9), lineage(3))).copies == 2
        assert (await client.prepare(TWIN, other)).state == READY
        assert (await client.prepare(STORE, other)).state != READY


async def test_a_member_without_the_files_gets_the_bytes(scene: Scene) -> None:
    a, _, c = await scene.cluster.start("a", "b", "c")
    async with a.attach() as client:
        await write(client)
    await scene.until_whole("job")
    (gone,) = [name for name in await scene.members("job") if name != "a"]
    other = scene["b"] if gone == "c" else c
    for name in (SST, "3_id3.zip", "4_id4.changelog"):
        path_of(scene[gone], STORE, name).unlink()
    await branch(a)
    await scene.until_whole("twin")
    assert path_of(scene[gone], TWIN, SST).read_bytes() == CONTENT
    assert not path_of(other, TWIN, SST).exists()


async def test_damage_of_a_file_is_damage_of_its_branch_and_both_are_repaired(scene: Scene) -> None:
    a, b = await scene.cluster.start("a", "b")
    async with a.attach() as client:
        await write(client)
    await scene.until_whole("job")
    await branch(a)
    await scene.until_whole("twin")
    flip_a_bit(path_of(b, TWIN, SST))
    number = (await start_scrub(b)).number
    seen = await until_scrub(b, lambda s: s.number == number and not s.running and s.errors == s.repaired)
    assert seen.errors > 0
    async with asyncio.timeout(20):
        for store in (STORE, TWIN):
            while not path_of(b, store, SST).exists():  # noqa: ASYNC110
                await asyncio.sleep(0.02)
            assert path_of(b, store, SST).read_bytes() == CONTENT


async def test_a_branch_stays_over_restarts(scene: Scene) -> None:
    a, b = await scene.cluster.start("a", "b")
    async with a.attach() as client:
        await write(client)
    await scene.until_whole("job")
    await branch(a)
    for process in (a, b):
        await process.end(signal.SIGKILL)
        await process.start()
    await check_opens(b, TWIN)
    assert same_file(b, SST)


@pytest.mark.parametrize(
    "failpoint",
    few(["store.take_over.index.before", "store.take_over.index.after", "store.incoming.rename.before"], 2),
)
async def test_a_branch_that_a_crash_has_cut_off_is_made_again(scene: Scene, failpoint: str) -> None:
    a, b = await scene.cluster.start("a", "b")
    async with a.attach() as client:
        await write(client)
    await scene.until_whole("job")
    await a.arm(f"{failpoint}=kill")
    with pytest.raises(grpc.aio.AioRpcError):
        await branch(a)
    await a.end()
    await a.start()
    await branch(a)
    await check_opens(a, TWIN)
    await check_opens(b, TWIN)
    await check_opens(a, STORE)


async def test_what_cannot_be_branched_is_refused_with_the_reason(scene: Scene) -> None:
    a, _ = await scene.cluster.start("a", "b")
    async with a.attach() as client:
        await write(client)
    for asked, number, job, reason in (
        (a, 9, "twin", "does not hold this version"),
        (a, NEWEST, "job", "cannot be a branch of itself"),
        (a, NEWEST, "../x", "must be"),
    ):
        with pytest.raises(grpc.aio.AioRpcError, match=reason):
            await branch(asked, number, job)


async def test_a_restructured_job_has_the_state_under_another_operator_and_no_bytes_travel(scene: Scene) -> None:
    """Of the files of state. The empty snapshot of the operator that is born travels."""
    a, *_ = await scene.cluster.start("a", "b", "c", "d")
    async with a.attach() as client:
        await write(client)
    await scene.until_whole("job")
    secondary = scene[(await scene.members("job"))[1]]
    before = (await statistics(secondary)).replicated_bytes_in
    reply = await restructure(a)
    assert (reply.files, reply.linked_bytes > len(CONTENT)) == (3, True)
    groups = (await asyncio.to_thread(fetch_overview, scene.address)).groups
    members = {(g.group.job, g.group.operator): {m.worker_id for m in g.members} for g in groups}
    assert members["twin", 1] == members["job", 0]
    assert (await statistics(secondary)).replicated_bytes_in - before < 1000
    for process in (a, secondary):
        for name in (SST, "4_id4.changelog"):
            assert os.path.samefile(path_of(process, STORE, name), path_of(process, MOVED, name))
        await check_opens(process, MOVED)
    async with a.attach() as client:
        empty = Version(NEWEST, "born")
        assert (await client.prepare(BORN, empty)).state == READY
        await client.commit(BORN, version(5), changelog_bytes(5), [empty])
        assert (await client.prepare(BORN, version(5))).state == READY
        await client.commit(MOVED, version(5), changelog_bytes(5), [version(3), version(4)])
    assert (await restructure(a)).files == 3, "it may be repeated"


@pytest.mark.nightly
async def test_a_restructured_job_lives_on_when_the_former_one_is_forgotten(scene: Scene) -> None:
    a, b = await scene.cluster.start("a", "b")
    async with a.attach() as client:
        await write(client)
    await scene.until_whole("job")
    await restructure(a)
    async with asyncio.timeout(30):
        while path_of(a, STORE, SST).exists() or path_of(b, STORE, SST).exists():
            try:
                await asyncio.to_thread(scene.forget, "job")
            except RhinoError:  # the manager has just started: it refuses for ten seconds
                await asyncio.sleep(0.5)
    for process in (a, b):
        await process.end(signal.SIGKILL)
        await process.start()
        await check_opens(process, MOVED)


async def test_what_cannot_be_restructured_is_refused_with_the_reason(scene: Scene) -> None:
    (a,) = await scene.cluster.start("a")
    async with a.attach(replicas=0) as client:
        await write(client)
    for target, born, number, reason in (
        (MOVED, BORN, 9, "does not hold this version"),
        (STORE._replace(operator=1), BORN, NEWEST, "cannot be a branch of itself"),
        (MOVED, STORE._replace(operator=7), NEWEST, "for a new job only"),
        (MOVED._replace(job="../x"), BORN, NEWEST, "must be"),
    ):
        with pytest.raises(grpc.aio.AioRpcError, match=reason):
            await restructure(a, target, born, number)


@pytest.mark.parametrize("failpoint", few(["store.incoming.rename.after", "store.take_over.index.after"]))
async def test_a_restructuring_that_a_crash_has_cut_off_is_made_again(scene: Scene, failpoint: str) -> None:
    a, b = await scene.cluster.start("a", "b")
    async with a.attach() as client:
        await write(client)
    await scene.until_whole("job")
    await a.arm(f"{failpoint}=kill")
    with pytest.raises(grpc.aio.AioRpcError):
        await restructure(a)
    await a.end()
    await a.start()
    await restructure(a)
    for process in (a, b):
        await check_opens(process, MOVED)
        async with process.attach() as client:
            assert (await client.prepare(BORN, Version(NEWEST, "born"))).state == READY
    await check_opens(a, STORE)
