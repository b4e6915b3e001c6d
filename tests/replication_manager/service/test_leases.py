"""No other process can beat, leave, watch or ask for groups in the name of a registered worker."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from replication_manager.service.runtime import LeaseTokens
from rhino_core.errors import PreconditionError, UnavailableError
from rhino_core.version import PROTOCOL, check_protocol
from rhino_pb import replication_pb2 as pb
from tests.replication_manager.support.service import GROUP, Stub, manager, worker

LEASE_S = 60.0  # none ends in these tests, however busy the machine is


async def register(stub: Stub, name: str, process: str = "", protocol: int = PROTOCOL) -> bytes:
    request = pb.RegisterRequest(worker=worker(name), process_id=process or name, protocol=protocol)
    reply = await stub.Register(request, timeout=5)
    assert reply.protocol == PROTOCOL
    lease: bytes = reply.lease
    return lease


async def beat(stub: Stub, *, leaving: bool = False, **leases: bytes) -> Any:
    """One beat for each worker in one stream, with its lease; the replies, up to the end of the stream."""

    async def beats() -> AsyncIterator[pb.HeartbeatRequest]:
        for name, lease in leases.items():
            yield pb.HeartbeatRequest(worker_id=name, incarnation=f"{name}/1", lease=lease, leaving=leaving)

    return [reply async for reply in stub.Heartbeat(beats(), timeout=5)]


async def state(stub: Stub, name: str) -> Any:
    reply = await stub.ListWorkers(pb.ListWorkersRequest(), timeout=5)
    return next(status.state for status in reply.workers if status.worker.worker_id == name)


async def test_a_farewell_in_anothers_name_is_refused(tmp_path: Path) -> None:
    async with manager(tmp_path, lease_s=LEASE_S) as stub:
        lease, other = await register(stub, "a"), await register(stub, "b")
        assert len(lease) == 16
        assert lease != other
        for shown in (b"", other, lease[:-1]):
            with pytest.raises(grpc.aio.AioRpcError, match="registered by another process") as refused:
                await beat(stub, a=shown, leaving=True)
            assert refused.value.code() is grpc.StatusCode.FAILED_PRECONDITION
        with pytest.raises(grpc.aio.AioRpcError, match="registered by another process"):
            await beat(stub, b=other, a=other)  # nor in a stream of one's own
        assert await state(stub, "a") == pb.WORKER_STATE_LIVE
        assert await beat(stub, a=lease)
        await beat(stub, a=lease, leaving=True)
        assert await state(stub, "a") == pb.WORKER_STATE_SUSPECT, "it may only be restarted"
        with pytest.raises(grpc.aio.AioRpcError, match="register first"):
            await beat(stub, a=lease)


async def test_a_stream_is_of_one_worker(tmp_path: Path) -> None:
    async with manager(tmp_path, lease_s=LEASE_S) as stub:
        leases = {name: await register(stub, name) for name in ("a", "b")}
        with pytest.raises(grpc.aio.AioRpcError, match="a heartbeat of 'b' in the stream of 'a'"):
            await beat(stub, a=leases["a"], b=leases["b"])


async def test_watching_and_asking_take_the_lease_which_is_shown_to_nobody(tmp_path: Path) -> None:
    async with manager(tmp_path, lease_s=LEASE_S) as stub:
        lease, _ = await register(stub, "a"), await register(stub, "b")
        for shown in (b"", b"x" * 16):
            with pytest.raises(grpc.aio.AioRpcError, match="registered by another process"):
                await stub.ResolveGroup(pb.ResolveGroupRequest(group=GROUP, worker_id="a", lease=shown), timeout=5)
            with pytest.raises(grpc.aio.AioRpcError, match="registered by another process"):
                await stub.WatchGroups(
                    pb.WatchGroupsRequest(worker_id="a", incarnation="a/1", lease=shown), timeout=5
                ).read()
        with pytest.raises(grpc.aio.AioRpcError, match="'nobody' is not registered"):
            await stub.ResolveGroup(pb.ResolveGroupRequest(group=GROUP, worker_id="nobody"), timeout=5)
        watch = stub.WatchGroups(pb.WatchGroupsRequest(worker_id="a", incarnation="a/1", lease=lease), timeout=5)
        sent = [(await watch.read()).SerializeToString()]
        for reply in (
            await stub.ListWorkers(pb.ListWorkersRequest(), timeout=5),
            await stub.ResolveGroup(pb.ResolveGroupRequest(group=GROUP, worker_id="a", lease=lease), timeout=5),
        ):
            sent.append(reply.SerializeToString())
        assert not [message for message in sent if lease in message]
        watch.cancel()


async def test_a_registration_voids_the_lease_before(tmp_path: Path) -> None:
    async with manager(tmp_path, lease_s=LEASE_S) as stub:
        first, second = await register(stub, "a"), await register(stub, "a")
        with pytest.raises(grpc.aio.AioRpcError, match="or again since"):
            await beat(stub, a=first)
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await register(stub, "a", process="another")
        assert refused.value.code() is grpc.StatusCode.ALREADY_EXISTS
        assert await beat(stub, a=second), "a refused registration voids nothing"


async def test_sidecars_one_version_apart_work(tmp_path: Path) -> None:
    async with manager(tmp_path, lease_s=LEASE_S) as stub:
        await register(stub, "same")
        lease = await register(stub, "new", protocol=PROTOCOL + 1)
        assert await beat(stub, new=lease)
        await stub.ResolveGroup(pb.ResolveGroupRequest(group=GROUP, worker_id="new", lease=lease), timeout=5)
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await register(stub, "newer", protocol=PROTOCOL + 2)
        assert refused.value.code() is grpc.StatusCode.FAILED_PRECONDITION
        text = refused.value.details() or ""
        assert f"'newer' speaks version {PROTOCOL + 2}" in text
        assert f"the manager version {PROTOCOL}" in text


def test_versions_that_are_too_far_apart_are_named() -> None:
    assert [check_protocol("x", spoken, here="y") for spoken in (1, 2)] == [1, 2]
    with pytest.raises(PreconditionError, match=r"x speaks version 3 .*, y version 1, .*: upgrade y$"):
        check_protocol("x", PROTOCOL + 2, here="y")


def test_leases() -> None:
    leases = LeaseTokens()
    with pytest.raises(UnavailableError):
        leases.check("a", b"")
    token = leases.grant("a")
    leases.check("a", token)
    leases.end("a")
    with pytest.raises(UnavailableError):
        leases.check("a", token)


async def test_a_worker_watches_once(tmp_path: Path) -> None:
    """An older stream of it, which nobody has noticed to be broken, ends."""
    async with manager(tmp_path, lease_s=LEASE_S) as stub:
        request = pb.WatchGroupsRequest(worker_id="a", incarnation="a/1", lease=await register(stub, "a"))
        first = stub.WatchGroups(request, timeout=20)
        assert (await first.read()).snapshot
        second = stub.WatchGroups(request, timeout=20)
        assert (await second.read()).snapshot
        while isinstance(await first.read(), pb.GroupUpdate):
            pass
        await register(stub, "b")
        assert {named.worker_id for named in (await second.read()).workers} == {"a", "b"}
        second.cancel()
