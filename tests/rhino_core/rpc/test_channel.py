import asyncio
import contextlib
import inspect
import math
import socket
import threading
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc
import grpc.aio
import pytest

from rhino_core import errors, ids
from rhino_core.rpc import convert, status
from rhino_core.rpc.binding import check_free
from rhino_core.rpc.channel import RenewedChannel, aio_channel, call, call_sync, sync_channel
from rhino_core.rpc.server import Server
from rhino_core.security.transport import Plain
from rhino_core.settings import ManagerSettings, SidecarSettings
from rhino_pb import common_pb2 as pb
from rhino_pb import replication_pb2, replication_pb2_grpc

STORE = ids.StoreId("job", 0, 3, "default")
WORKERS = tuple(ids.Worker(f"w{i}", f"s{i}/b", f"127.0.0.{i}", f"127.0.0.{i}:1") for i in (1, 2))


def test_every_error_has_a_status() -> None:
    kinds = [k for _, k in inspect.getmembers(errors, inspect.isclass) if issubclass(k, errors.RhinoError)]
    made = [k("text") for k in kinds]
    assert {status.status_of(e) for e in made} >= {grpc.StatusCode.DATA_LOSS, grpc.StatusCode.ABORTED}
    assert status.status_of(errors.TooFewWorkersError("x")) is grpc.StatusCode.FAILED_PRECONDITION
    assert status.status_of(errors.LostError("x")) is grpc.StatusCode.DATA_LOSS


def test_an_unreachable_manager_is_named() -> None:
    with sync_channel("127.0.0.1:1") as channel:
        stub = replication_pb2_grpc.ReplicationManagerStub(channel)
        with pytest.raises(errors.UnavailableError, match="the manager"):
            call_sync("the manager", lambda: stub.ListWorkers(replication_pb2.ListWorkersRequest(), timeout=2))


async def test_an_unreachable_manager_is_named_by_asynchronous_calls_too() -> None:
    async with aio_channel("127.0.0.1:1") as channel:
        stub = replication_pb2_grpc.ReplicationManagerStub(channel)
        with pytest.raises(errors.UnavailableError, match="the manager"):
            await call("the manager", lambda: stub.ListWorkers(replication_pb2.ListWorkersRequest(), timeout=2))


def test_groups_and_files_survive_the_wire() -> None:
    settings = ids.JobSettings(2, 3, ids.BelowMinCopies.BLOCK, ids.Durability.SYNCED)
    members = (ids.Member(WORKERS[0], True), ids.Member(WORKERS[1], False))
    group = ids.ReplicaGroup(STORE.group, ids.Epoch(2, 7), members, 1, settings)
    assert convert.replica_group_of(convert.replica_group_to_pb(group)) == group
    entry = ids.FileEntry(STORE, "2_b.changelog", 10, 99, lineage=(ids.Version(1, "a"),), written_by="w1")
    assert convert.file_of(convert.file_to_pb(entry)) == entry
    zipped = ids.FileEntry(STORE, "2_b.zip", 10, 99, references=("SSTs/1-a.sst",))
    assert convert.file_of(convert.file_to_pb(zipped)) == zipped


def test_unset_settings_mean_the_defaults() -> None:
    assert convert.settings_of(pb.JobSettings()) == ids.JobSettings()
    assert convert.settings_of(convert.settings_to_pb(ids.JobSettings(0))).replication_factor == 0


def test_settings_name_field_value_and_what_is_allowed(tmp_path: Path) -> None:
    with pytest.raises(errors.InvalidSettingError, match=r"listen = 'nowhere'.*host:port"):
        ManagerSettings(tmp_path, "nowhere")
    with pytest.raises(errors.InvalidSettingError, match=r"lease_s = 0.1"):
        ManagerSettings(tmp_path, "h:1", lease_s=0.1)
    for endless in (math.inf, math.nan):
        with pytest.raises(errors.InvalidSettingError, match=r"lease_s = (inf|nan)"):
            ManagerSettings(tmp_path, "h:1", lease_s=endless)
        with pytest.raises(errors.InvalidSettingError, match=r"lag_cap_s = (inf|nan)"):
            ManagerSettings(tmp_path, "h:1", lag_cap_s=endless)
    with pytest.raises(errors.InvalidSettingError, match="memory_limit_bytes"):
        SidecarSettings(tmp_path, "h", "w", "h:1", memory_limit_bytes=1)


def failing(error: Exception | None = None, reply: replication_pb2.ListWorkersReply | None = None) -> Any:
    """A servicer with two methods, which raise or answer so."""

    async def list_workers(request: replication_pb2.ListWorkersRequest, context: object) -> object:
        if error is not None:
            raise error
        return reply

    async def watch(request: object, context: object) -> AsyncIterator[replication_pb2.GroupUpdate]:
        yield replication_pb2.GroupUpdate()
        raise error or AssertionError

    names = [m.name for m in replication_pb2.DESCRIPTOR.services_by_name["ReplicationManager"].methods]
    return SimpleNamespace(**{**dict.fromkeys(names), "ListWorkers": list_workers, "WatchGroups": watch})


@contextlib.asynccontextmanager
async def served(servicer: Any) -> AsyncIterator[int]:
    """Yields the port."""
    server = Server(reflect=False)
    server.add(replication_pb2_grpc.add_ReplicationManagerServicer_to_server, servicer, "rhino.v1.ReplicationManager")
    port = server.bind("127.0.0.1:0")
    await server.start()
    yield port
    await server.stop(0)


@contextlib.asynccontextmanager
async def channel_to(servicer: Any) -> AsyncIterator[grpc.aio.Channel]:
    async with served(servicer) as port, aio_channel(f"127.0.0.1:{port}") as channel:
        yield channel


async def test_of_several_addresses_the_one_that_answers_is_used() -> None:
    request = replication_pb2.ListWorkersRequest()
    async with served(failing(reply=replication_pb2.ListWorkersReply())) as port:
        for places in (f"127.0.0.1:1,localhost:{port}", f"none.invalid:1,127.0.0.1:{port},127.0.0.1:1"):
            async with aio_channel(places) as channel:
                stub = replication_pb2_grpc.ReplicationManagerStub(channel)
                assert await call("the manager", partial(stub.ListWorkers, request, timeout=20)) is not None
    async with aio_channel("none.invalid:1,127.0.0.1:1") as channel:
        stub = replication_pb2_grpc.ReplicationManagerStub(channel)
        with pytest.raises(errors.UnavailableError, match="the manager"):
            await call("the manager", partial(stub.ListWorkers, request, timeout=5))


class Renewing(Plain):
    """Its certificate has another edition whenever a test says so."""

    edition = 1


async def test_names_are_resolved_without_holding_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop serves commits, and a resolver without answer takes its time."""
    begun, go_on = threading.Event(), threading.Event()

    def resolve(*_: object, **__: object) -> list[Any]:
        begun.set()
        assert go_on.wait(10), "the event loop is held"
        raise socket.gaierror

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    transport = Renewing()
    channel = RenewedChannel("none.invalid:1,none.invalid:2", transport)
    first = channel.current()
    transport.edition = 2
    second = channel.current()
    assert second is not first
    assert not begun.is_set(), "a new certificate needs no names"
    renewing = asyncio.create_task(channel.renew())
    assert await asyncio.to_thread(begun.wait, 10)
    assert channel.current() is second, "calls go on meanwhile"
    go_on.set()
    await renewing
    assert channel.current() is not second
    await channel.close()


async def test_a_renewed_channel_leads_to_the_address_that_answers() -> None:
    request = replication_pb2.ListWorkersRequest()
    async with served(failing(reply=replication_pb2.ListWorkersReply())) as port:
        channel = RenewedChannel(f"127.0.0.1:1,localhost:{port}", Plain())
        await channel.renew()
        stub = replication_pb2_grpc.ReplicationManagerStub(channel.current())
        assert await call("the manager", partial(stub.ListWorkers, request, timeout=20)) is not None
        await channel.close()


async def test_a_bug_is_told_by_a_number_and_only_the_log_tells_more(caplog: pytest.LogCaptureFixture) -> None:
    async with channel_to(failing(RuntimeError("a bug"))) as channel:
        stub = replication_pb2_grpc.ReplicationManagerStub(channel)
        watch = replication_pb2.WatchGroupsRequest(worker_id="w", incarnation="w/1")
        numbers = set()
        for _ in range(2):
            with pytest.raises(errors.RemoteProtocolError, match=r"internal error [0-9a-f]{8}") as told:
                await call("list", lambda: stub.ListWorkers(replication_pb2.ListWorkersRequest(), timeout=5))
            assert "a bug" not in str(told.value)
            numbers.add(str(told.value).partition("internal error ")[2][:8])
        stream = stub.WatchGroups(watch, timeout=5)
        await stream.read()
        with pytest.raises(grpc.aio.AioRpcError) as ended:
            await stream.read()
        assert ended.value.code() is grpc.StatusCode.INTERNAL
    records = [record for record in caplog.records if record.message == "call failed"]
    assert numbers == {vars(records[0])["id"]}, "a repetition has no line of its own"
    assert vars(records[0])["from"].startswith("ipv4:127.0.0.1"), "who did it"
    assert [record.exc_info is not None for record in records] == [True, True], "one trace for each place"


async def test_a_long_error_is_cut_to_what_headers_carry() -> None:
    async with channel_to(failing(errors.UnknownError("é" * 100_000))) as channel:
        stub = replication_pb2_grpc.ReplicationManagerStub(channel)
        with pytest.raises(errors.UnknownError, match=r"cut: 100000 characters in all") as told:
            await call("list", lambda: stub.ListWorkers(replication_pb2.ListWorkersRequest(), timeout=5))
        assert len(str(told.value).encode()) < 3000


async def test_garbage_is_refused_without_a_stack_trace(caplog: pytest.LogCaptureFixture) -> None:
    async with channel_to(failing(RuntimeError("a bug"))) as channel:
        for _ in range(3):
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await channel.unary_unary("/rhino.v1.ReplicationManager/ListWorkers", None, None)(b"\xff\xff\xff")
            assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
            stream = channel.unary_stream("/rhino.v1.ReplicationManager/WatchGroups", None, None)(b"\xff\xff\xff")
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await stream.read()
            assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert not [record for record in caplog.records if record.exc_info]


async def test_a_hostile_reply_is_the_other_sides_fault() -> None:
    reply = replication_pb2.ListWorkersReply(generation=2**64 - 1)
    async with channel_to(failing(reply=reply)) as channel:
        stub = replication_pb2_grpc.ReplicationManagerStub(channel)
        with pytest.raises(errors.RemoteProtocolError, match=r"the manager: ListWorkersReply\.generation"):
            await call("the manager", lambda: stub.ListWorkers(replication_pb2.ListWorkersRequest(), timeout=5))


@pytest.mark.parametrize("usable", [True, False])
def test_of_the_addresses_of_a_name_one_suffices(monkeypatch: pytest.MonkeyPatch, usable: bool) -> None:
    """`localhost` is `::1`, too, where there is no IPv6."""
    nowhere = (socket.AF_INET6, socket.SOCK_STREAM, 6, "", ("2001:db8::1", 0, 0, 0))
    here = (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 0))
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: [nowhere, here] if usable else [nowhere])
    with contextlib.nullcontext() if usable else pytest.raises(errors.InvalidSettingError, match="name:0"):
        check_free("name:0")


def test_one_taken_address_of_a_name_is_one_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        infos = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (host, port)) for host in ("127.0.0.2", "127.0.0.1")]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: infos)
        with pytest.raises(errors.UnavailableError, match="another process"):
            check_free(f"name:{port}")
