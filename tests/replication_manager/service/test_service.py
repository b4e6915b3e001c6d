"""The ReplicationManager service over real gRPC, with sidecars that only talk."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc
import grpc.aio
import pytest

from replication_manager.protocol import events as ev
from replication_manager.service import stored, watchers
from replication_manager.service.service import ReplicationService
from replication_manager.service.stored import FLOORS, FORGOTTEN, GROUPS, WORKERS
from rhino_core import ids
from rhino_core.epochs import generation_ceiling
from rhino_core.errors import UnavailableError
from rhino_core.journal import Journal
from rhino_core.rpc import convert, gate
from rhino_core.settings import ManagerSettings
from rhino_pb import common_pb2, replication_pb2
from tests.replication_manager.support.service import GROUP, Stub, manager, served, worker

LEASES = defaultdict[str, bytes](bytes)  # of the newest registration of each worker


@asynccontextmanager
async def sidecar(stub: Stub, name: str) -> AsyncIterator[None]:
    """Registers and beats until the block ends; then its stream breaks."""
    request = replication_pb2.RegisterRequest(worker=worker(name), process_id=name)
    LEASES[name] = (await stub.Register(request, timeout=5)).lease

    async def beats() -> AsyncIterator[replication_pb2.HeartbeatRequest]:
        while True:
            yield replication_pb2.HeartbeatRequest(worker_id=name, incarnation=f"{name}/1", lease=LEASES[name])
            await asyncio.sleep(0.05)

    stream = stub.Heartbeat(beats(), timeout=60)
    try:
        await stream.read()
        yield
    finally:
        stream.cancel()


async def resolve(stub: Stub, name: str) -> Any:
    request = replication_pb2.ResolveGroupRequest(group=GROUP, worker_id=name, lease=LEASES[name])
    return (await stub.ResolveGroup(request, timeout=5)).group


async def test_a_lost_member_is_replaced_and_watchers_hear_of_it(tmp_path: Path) -> None:
    async with manager(tmp_path) as stub, AsyncExitStack() as stack:
        for name in ("a", "b"):
            await stack.enter_async_context(sidecar(stub, name))
        lost = await stack.enter_async_context(AsyncExitStack())
        await lost.enter_async_context(sidecar(stub, "c"))
        group = await resolve(stub, "c")
        heir = group.members[1].worker.worker_id
        watch = stub.WatchGroups(
            replication_pb2.WatchGroupsRequest(worker_id=heir, incarnation=f"{heir}/1", lease=LEASES[heir]), timeout=20
        )
        first = await watch.read()
        assert first.snapshot
        assert [g.group for g in first.groups] == [GROUP]
        assert {w.worker_id for w in first.workers} == {"a", "b", "c"}
        await lost.aclose()
        async with asyncio.timeout(10):
            while True:
                update = await watch.read()
                if update.groups and "c" not in [m.worker.worker_id for m in update.groups[0].members]:
                    break
        new = update.groups[0]
        assert new.members[0].worker.worker_id == heir
        assert [m.whole for m in new.members] == [True, False]
        assert new.required_copies == 1
        assert [w.worker_id for w in update.absent] == ["c"]
        watch.cancel()


async def test_a_restart_keeps_groups_and_raises_the_generation(tmp_path: Path) -> None:
    async with manager(tmp_path) as stub, sidecar(stub, "a"), sidecar(stub, "b"):
        before = await resolve(stub, "a")
        first = await stub.ListWorkers(replication_pb2.ListWorkersRequest(), timeout=5)
    async with manager(tmp_path, bootstrap=False) as stub:
        after = await stub.DescribeGroups(replication_pb2.DescribeGroupsRequest(job="job"), timeout=5)
        second = await stub.ListWorkers(replication_pb2.ListWorkersRequest(), timeout=5)
    assert [g.group for g in after.groups] == [before]
    assert second.generation == first.generation + 1
    assert {w.state for w in second.workers} == {replication_pb2.WORKER_STATE_SUSPECT}


async def test_refusals_have_their_status_codes(tmp_path: Path) -> None:
    async with manager(tmp_path) as stub, sidecar(stub, "a"):
        calls = [
            (resolve(stub, "a"), grpc.StatusCode.FAILED_PRECONDITION),
            (resolve(stub, "nobody"), grpc.StatusCode.UNAVAILABLE),
            (
                stub.Register(replication_pb2.RegisterRequest(worker=worker("a"), process_id="other"), timeout=5),
                grpc.StatusCode.ALREADY_EXISTS,
            ),
        ]
        attempt: Any
        for attempt, code in calls:
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await attempt
            assert caught.value.code() is code


async def watching(stub: Stub, name: str) -> Any:
    """The stream of `name`'s news, and its first message."""
    request = replication_pb2.WatchGroupsRequest(worker_id=name, incarnation=f"{name}/1", lease=LEASES[name])
    stream = stub.WatchGroups(request, timeout=20)
    return stream, await stream.read()


def version(number: int) -> common_pb2.StoreVersion:
    store = common_pb2.StoreId(job="job", operator=0, partition=1, store="default")
    return common_pb2.StoreVersion(store=store, version=common_pb2.Version(version=number, checkpoint_id=f"x{number}"))


def publish(service: ReplicationService, *, logged: int, floor: int) -> None:
    named, oldest = convert.store_version_of(version(logged)), convert.store_version_of(version(floor))
    service.handle(ev.BatchPublished("job", logged - 1, (named,), (oldest,)))


async def news(stream: Any, wanted: Callable[[Any], bool]) -> Any:
    """The first update for which `wanted` is true."""
    async with asyncio.timeout(10):
        while not wanted(update := await stream.read()):
            pass
    return update


async def test_a_new_member_gets_the_floors_and_one_that_was_cut_off_is_told(tmp_path: Path) -> None:
    async with served(tmp_path) as (stub, service), AsyncExitStack() as stack:
        for name in ("a", "b"):
            await stack.enter_async_context(sidecar(stub, name))
        await resolve(stub, "a")
        publish(service, logged=9, floor=4)
        await stack.enter_async_context(sidecar(stub, "c"))
        stream, first = await watching(stub, "c")
        assert (list(first.groups), list(first.floors)) == ([], [])
        service.handle(ev.Change(convert.group_of(GROUP), "c", ""))
        joined = await news(stream, lambda update: len(update.groups) == 1)
        assert [m.whole for m in joined.groups[0].members] == [True, True, False]
        assert [floor.version for floor in joined.floors] == [version(4)]
        assert {w.worker_id for w in first.workers} == {"a", "b", "c"}
        assert joined.workers_unchanged
        service.handle(ev.Change(convert.group_of(GROUP), "", "a"))
        left = await news(stream, lambda update: len(update.left) == 1)
        assert list(left.left) == [GROUP]


async def test_who_stores_files_of_a_group_hears_of_it_until_they_are_gone(tmp_path: Path) -> None:
    """So that it can ask the members whether it may delete them."""
    async with served(tmp_path) as (stub, service), AsyncExitStack() as stack:
        for name in ("a", "b"):
            await stack.enter_async_context(sidecar(stub, name))
        group = await resolve(stub, "a")
        await stack.enter_async_context(sidecar(stub, "c"))
        stream, first = await watching(stub, "c")
        assert list(first.groups) == []
        await stores(stub, "c", 3)
        assert list((await news(stream, lambda update: len(update.groups) == 1)).groups) == [group]
        await stores(stub, "c", 0)
        service.handle(ev.Change(convert.group_of(GROUP), "", "b"))
        assert list((await news(stream, lambda update: len(update.left) == 1)).left) == [GROUP]


async def stores(stub: Stub, name: str, files: int) -> None:
    """Says so in a heartbeat."""
    report = replication_pb2.GroupReport(group=GROUP, stored_files=files)
    beat = replication_pb2.HeartbeatRequest(
        worker_id=name, incarnation=f"{name}/1", changed=[report], lease=LEASES[name]
    )

    async def beats() -> AsyncIterator[replication_pb2.HeartbeatRequest]:
        yield beat

    async for _ in stub.Heartbeat(beats(), timeout=5):
        return


async def test_a_guest_hears_of_the_group_it_has_resolved(tmp_path: Path) -> None:
    async with served(tmp_path) as (stub, service), sidecar(stub, "a"), sidecar(stub, "b"), sidecar(stub, "c"):
        group = await resolve(stub, "a")
        guest = ({"b", "c"} - {group.members[1].worker.worker_id}).pop()
        stream, first = await watching(stub, guest)
        assert list(first.groups) == []
        assert await resolve(stub, guest) == group
        publish(service, logged=9, floor=4)
        assert [f.version for f in (await news(stream, lambda update: len(update.floors) == 1)).floors] == [version(4)]


async def test_floors_that_rise_within_a_short_time_come_in_one_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with served(tmp_path) as (stub, service), sidecar(stub, "a"), sidecar(stub, "b"):
        await resolve(stub, "a")
        stream, _ = await watching(stub, "a")
        monkeypatch.setattr(watchers, "FLOORS_PAUSE_S", 1.0)
        for floor in (4, 5, 6):
            publish(service, logged=9, floor=floor)
            await asyncio.sleep(0.02)  # a stream that did not wait would tell of each
        first = await news(stream, lambda update: len(update.floors) > 0)
        assert [floor.version for floor in first.floors] == [version(6)]


async def beat_once(stub: Stub, name: str, *reports: replication_pb2.GroupReport, leaving: bool = False) -> None:
    beat = replication_pb2.HeartbeatRequest(
        worker_id=name,
        incarnation=f"{name}/1",
        changed=reports,
        leaving=leaving,
        stored_bytes=70,
        free_bytes=30,
        lease=LEASES[name],
    )
    stream = stub.Heartbeat(timeout=5)
    await stream.write(beat)
    await stream.read()
    stream.cancel()


async def test_a_drained_worker_that_leaves_is_lost_at_once_and_one_that_never_came_is_refused(
    tmp_path: Path,
) -> None:
    async with served(tmp_path) as (stub, service), sidecar(stub, "a"), sidecar(stub, "b"):
        group = await resolve(stub, "a")
        service.handle(ev.DrainSet("b", True))
        stream, _ = await watching(stub, "a")
        await beat_once(stub, "b", leaving=True)
        update = await news(stream, lambda update: len(update.groups) == 1)
        assert [m.worker.worker_id for m in update.groups[0].members] == ["a"]
        assert update.groups[0].epoch.counter > group.epoch.counter
        assert [w.worker_id for w in update.absent] == ["b"]
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await beat_once(stub, "nobody")
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE


async def test_a_group_is_described_with_lag_and_with_others_that_store_it(tmp_path: Path) -> None:
    async with served(tmp_path) as (stub, service), sidecar(stub, "a"), sidecar(stub, "b"), sidecar(stub, "c"):
        group = await resolve(stub, "a")
        second = group.members[1].worker.worker_id
        other = ({"b", "c"} - {second}).pop()
        publish(service, logged=8, floor=4)
        for name, newest in (("a", 9), (second, 7), (other, 3)):
            report = replication_pb2.GroupReport(
                group=GROUP, epoch=group.epoch, whole=True, stored_bytes=50, newest_held=[version(newest)]
            )
            await beat_once(stub, name, report)
        (found,) = (await stub.DescribeGroups(replication_pb2.DescribeGroupsRequest(job="job"), timeout=5)).groups
        assert found.lag_versions == 2
        assert list(found.logged) == [version(8)]
        assert [(m.worker.worker_id, m.newest_held[0].version.version) for m in found.members] == [
            ("a", 9),
            (second, 7),
        ]
        assert [(m.worker.worker_id, m.stored_bytes) for m in found.others] == [(other, 50)]
        absent = await stub.DescribeGroups(replication_pb2.DescribeGroupsRequest(job="another"), timeout=5)
        assert list(absent.groups) == []


async def test_who_was_interested_in_a_job_that_was_forgotten_is_not_remembered(tmp_path: Path) -> None:
    async with served(tmp_path) as (stub, service), sidecar(stub, "a"), sidecar(stub, "b"):
        await resolve(stub, "a")
        assert any(service.runtime.audience.interested.values())
        service.forget_job("job", dry_run=False)
        assert not any(service.runtime.audience.interested.values())


async def test_nothing_is_told_that_could_not_be_journalled(tmp_path: Path) -> None:
    journal = Journal(tmp_path, bootstrap=True)
    service = ReplicationService(journal, ManagerSettings(tmp_path, "127.0.0.1:0"))
    running = asyncio.create_task(service.run())
    await asyncio.sleep(0)
    journal.close()
    request = replication_pb2.RegisterRequest(worker=worker("a"), process_id="a")
    context: Any = SimpleNamespace(peer=lambda: "ipv4:127.0.0.1:40000")
    with pytest.raises(Exception, match="closed"):
        await service.Register(request, context)
    with pytest.raises(UnavailableError, match="stopping"):
        await service.Register(request, context)
    with pytest.raises(Exception, match="closed"):
        await asyncio.wait_for(running, 5)


async def test_a_worker_may_be_called_as_an_attribute_of_a_log_record(tmp_path: Path) -> None:
    async with manager(tmp_path) as stub:
        for name in ("name", "process", "args", "message"):
            async with sidecar(stub, name):
                pass
        assert len((await stub.ListWorkers(replication_pb2.ListWorkersRequest(), timeout=5)).workers) == 4
    async with manager(tmp_path, bootstrap=False) as stub:
        assert len((await stub.ListWorkers(replication_pb2.ListWorkersRequest(), timeout=5)).workers) == 4


@pytest.mark.parametrize(
    "epoch",
    [common_pb2.Epoch(generation=2**64 - 1), common_pb2.Epoch(generation=2**63), common_pb2.Epoch(counter=2**64 - 1)],
)
async def test_an_impossible_epoch_is_refused_and_nothing_is_journalled(
    tmp_path: Path, epoch: common_pb2.Epoch
) -> None:
    async with manager(tmp_path) as stub, sidecar(stub, "a"), sidecar(stub, "b"):
        request = replication_pb2.RegisterRequest(worker=worker("c"), process_id="c", highest_epoch=epoch)
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await stub.Register(request, timeout=5)
        assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        before = await resolve(stub, "a")
    async with manager(tmp_path, bootstrap=False) as stub:
        after = await stub.DescribeGroups(replication_pb2.DescribeGroupsRequest(job="job"), timeout=5)
        assert [g.group for g in after.groups] == [before]


async def test_what_somebody_claims_takes_the_manager_nowhere_where_sidecars_do_not_follow(tmp_path: Path) -> None:
    """Their ceilings are from their starts, before the manager's."""
    highest = generation_ceiling()
    async with manager(tmp_path) as stub:
        claim = common_pb2.Epoch(generation=highest, counter=ids.COUNTER_MAX)
        request = replication_pb2.RegisterRequest(worker=worker("a"), process_id="a", highest_epoch=claim)
        reply = await stub.Register(request, timeout=5)
        assert reply.generation == highest + 1
        gate.check(reply)
        report = replication_pb2.GroupReport(group=GROUP, epoch=common_pb2.Epoch(generation=highest + 10**9))
        request = replication_pb2.RegisterRequest(worker=worker("b"), process_id="b", groups=[report])
        with pytest.raises(grpc.aio.AioRpcError, match="'b' claims to have seen generation"):
            await stub.Register(request, timeout=5)
    async with manager(tmp_path, bootstrap=False) as stub:
        workers = await stub.ListWorkers(replication_pb2.ListWorkersRequest(), timeout=5)
        assert workers.generation == highest + 2


async def test_managers_on_copies_of_a_journal_never_issue_the_same_epoch(tmp_path: Path) -> None:
    async with manager(tmp_path / "one"):
        pass
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    issued = []
    for folder in (tmp_path / "one", tmp_path / "two"):
        async with manager(folder, bootstrap=False) as stub, sidecar(stub, "a"), sidecar(stub, "b"):
            epoch = (await resolve(stub, "a")).epoch
            issued.append((epoch.generation, epoch.counter))
    assert issued[0][0] == issued[1][0]
    assert issued[0] != issued[1]


async def test_a_poisoned_journal_still_opens_and_heals(tmp_path: Path) -> None:
    """As a manager without a gate could write it."""
    async with manager(tmp_path) as stub, sidecar(stub, "a"), sidecar(stub, "b"):
        await resolve(stub, "a")
    journal = Journal(tmp_path)
    (key, data), *_ = journal.items(GROUPS.prefix)

    def changed(job: str = "job", partition: int = 0) -> common_pb2.ReplicaGroup:
        group = common_pb2.ReplicaGroup.FromString(data)
        group.epoch.generation = 2**64 - 1
        group.group.job, group.group.partition = job, partition
        return group

    journal.write({key: changed(partition=GROUP.partition).SerializeToString()})
    nobody, twice = changed(partition=7), changed(partition=8)
    del nobody.members[:]
    twice.members.append(twice.members[0])
    named = {f"{GROUPS.prefix}job/0/7": nobody, f"{GROUPS.prefix}job/0/8": twice}
    named[f"{GROUPS.prefix}../../x/0/0"] = changed("../../x")
    journal.write({name: group.SerializeToString() for name, group in named.items()})
    hostile = common_pb2.Worker(worker_id="a b", incarnation="1", host="h", peer_address="h:1")
    journal.write({f"{WORKERS.prefix}a b": hostile.SerializeToString()})
    journal.write({f"{FLOORS.prefix}x": b"no message", f"{FLOORS.prefix}y": {"no": "bytes"}})
    journal.write({f"{FORGOTTEN}../x": [1, 1]})
    journal.write({f"{FORGOTTEN}gone": [2**64, 1]})
    journal._write({"generation": 2**63 - 2})
    journal.close()
    now_ms = int(time.time() * 1000)
    async with manager(tmp_path, bootstrap=False) as stub:
        workers = await stub.ListWorkers(replication_pb2.ListWorkersRequest(), timeout=5)
        assert now_ms <= workers.generation < now_ms + 60_000
        assert {w.worker.worker_id for w in workers.workers} == {"a", "b"}
        groups = (await stub.DescribeGroups(replication_pb2.DescribeGroupsRequest(), timeout=5)).groups
        assert [g.group.group for g in groups] == [GROUP]
        seen = common_pb2.Epoch(generation=now_ms - 5, counter=3)
        report = replication_pb2.GroupReport(group=GROUP, epoch=seen, whole=True, stored_files=1)
        request = replication_pb2.RegisterRequest(
            worker=worker("a"), process_id="a", highest_epoch=seen, groups=[report]
        )
        await stub.Register(request, timeout=5)
        groups = (await stub.DescribeGroups(replication_pb2.DescribeGroupsRequest(), timeout=5)).groups
        assert groups[0].group.epoch.generation == workers.generation, "renewed beyond what its members have seen"


def test_of_several_effects_on_one_record_the_last_one_counts(tmp_path: Path) -> None:
    """As when a group ends and is made again by one event."""
    journal = Journal(tmp_path, bootstrap=True)
    group, floor = ids.GroupId("job", 0, 1), ids.StoreVersion(ids.StoreId("job", 0, 1, "s"), ids.Version(1, "a"))
    made = ids.ReplicaGroup(
        group, ids.Epoch(1, 1), (ids.Member(convert.worker_of(worker("a")), True),), 1, ids.JobSettings()
    )
    stored.persist(journal, [ev.PersistGroup(made), ev.PersistFloor(floor)])
    stored.persist(journal, [ev.DropGroups((group,), (floor.store,)), ev.PersistGroup(made)])
    assert [key for key, _ in journal.items()] == [f"{GROUPS.prefix}{group}"]
    stored.persist(journal, [ev.PersistGroup(made), ev.DropGroups((group,), ())])
    assert not list(journal.items())
    journal.close()
