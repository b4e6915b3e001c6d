"""What Rhino's servers let a connection do."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from replication_manager.service.service import ReplicationService
from rhino_core.errors import RemoteProtocolError
from rhino_core.journal import Journal
from rhino_core.rpc.channel import REQUEST_BYTES_MAX, aio_channel, call, call_sync, sync_channel
from rhino_core.rpc.parts import PART_BYTES, in_parts
from rhino_core.rpc.server import Server
from rhino_core.settings import ManagerSettings
from rhino_pb import common_pb2, replication_pb2, replication_pb2_grpc
from tests import forked
from tests.rhino_core.support.metrics import free_port


@pytest.mark.timeout(60)
async def test_a_connection_that_says_nothing_is_closed() -> None:
    server = Server(reflect=False)
    port = server.bind("127.0.0.1:0")
    await server.start()
    started = time.monotonic()
    with socket.create_connection(("127.0.0.1", port), timeout=30) as sock:
        await asyncio.to_thread(lambda: [None for _ in iter(lambda: sock.recv(4096), b"")])
    assert time.monotonic() - started < 20
    await server.stop(0)


@contextlib.asynccontextmanager
async def manager(folder: Path, calls_max: int = 32) -> AsyncIterator[tuple[str, ReplicationService]]:
    journal = Journal(folder, bootstrap=True)
    server = Server(calls_max=calls_max)
    service = ReplicationService(journal, ManagerSettings(folder, "127.0.0.1:0"))
    service.attach(server)
    running = asyncio.create_task(service.run())
    port = server.bind("127.0.0.1:0")
    await server.start()
    try:
        yield f"127.0.0.1:{port}", service
    finally:
        running.cancel()
        await server.stop(0)
        journal.close()


def registration(groups: int) -> replication_pb2.RegisterRequest:
    named = common_pb2.Worker(worker_id="a", incarnation="a/1", host="a", peer_address="a:1")
    request = replication_pb2.RegisterRequest(worker=named, process_id="a")
    for number in range(groups):
        request.groups.add(group=common_pb2.GroupId(job="j" * 120, operator=0, partition=number))
    return request


async def test_a_message_above_4_mib_is_refused_and_a_large_registration_comes_in_parts(tmp_path: Path) -> None:
    async with manager(tmp_path) as (address, service), aio_channel(address) as channel:
        stub = replication_pb2_grpc.ReplicationManagerStub(channel)
        request = registration(35_000)
        assert request.ByteSize() > REQUEST_BYTES_MAX
        for too_large in (
            lambda: stub.Register(request, timeout=30),
            lambda: stub.DescribeGroups(replication_pb2.DescribeGroupsRequest(job="j" * REQUEST_BYTES_MAX), timeout=30),
        ):
            with pytest.raises(RemoteProtocolError, match=r"the manager: .*message larger than max"):
                await call("the manager", too_large)
        parts = list(in_parts(replication_pb2.RegisterPart(request=request)))
        assert [part.ByteSize() <= PART_BYTES + 100 for part in parts] == [True] * 5
        assert (await stub.RegisterInParts(iter(parts), timeout=30)).generation
        assert len(service.core.membership.records["a"].reports) == 35_000


async def test_parts_that_are_no_registration_are_refused(tmp_path: Path) -> None:
    async with manager(tmp_path) as (address, _), aio_channel(address) as channel:
        stub = replication_pb2_grpc.ReplicationManagerStub(channel)
        parts = list(in_parts(replication_pb2.RegisterPart(request=registration(20_000))))
        for wrong, why in (
            ([], "ended before it was complete"),
            (parts[:1], "ended before it was complete"),
            ([replication_pb2.RegisterPart(part=common_pb2.Part(data=b"\xff", last=True))], "not a message of this"),
        ):
            with pytest.raises(grpc.aio.AioRpcError, match=why) as refused:
                await stub.RegisterInParts(iter(wrong), timeout=30)
            assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT


def concurrent_calls(port: int) -> int:
    """What the server says of itself in its first HTTP/2 frame."""
    with socket.create_connection(("127.0.0.1", port), timeout=30) as sock:
        sock.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(3) + b"\x04" + bytes(5))
        head = sock.recv(9, socket.MSG_WAITALL)
        assert head[3] == 4, "SETTINGS"
        settings = sock.recv(int.from_bytes(head[:3]), socket.MSG_WAITALL)
    pairs = {int.from_bytes(settings[at : at + 2]): settings[at + 2 : at + 6] for at in range(0, len(settings), 6)}
    return int.from_bytes(pairs[3])


async def test_a_connection_has_few_calls_at_once(tmp_path: Path) -> None:
    """Each of them may have one unfinished message."""
    async with manager(tmp_path) as (address, _):
        assert await asyncio.to_thread(concurrent_calls, int(address.rpartition(":")[2])) == 32


@pytest.mark.timeout(60)
def test_silent_connections_end_no_manager(tmp_path: Path) -> None:
    """More of them than it may have open files, at the port of its service and that of its metrics."""
    metrics = free_port()
    limited = f"import resource\nresource.setrlimit(resource.RLIMIT_NOFILE, (100, 100))\n{forked.RHINO}"
    options = ("--data-dir", str(tmp_path / "m"), "--listen", "127.0.0.1:0", "--bootstrap")
    with (tmp_path / "log").open("w") as log:
        process = forked.Popen(limited, "manager", *options, "--metrics-port", str(metrics), stderr=log.fileno())
    try:
        address = json.loads(process.stdout.readline())["address"]
        strangers = []
        for port in (metrics, int(address.rpartition(":")[2])):
            for _ in range(200):
                sock = socket.socket()
                sock.setblocking(False)
                sock.connect_ex(("127.0.0.1", port))
                strangers.append(sock)
        time.sleep(1.0)  # for it to have taken what it can
        for sock in strangers:
            sock.close()
        with sync_channel(address) as channel:
            stub = replication_pb2_grpc.ReplicationManagerStub(channel)
            call_sync(
                "workers",
                lambda: stub.ListWorkers(replication_pb2.ListWorkersRequest(), timeout=5),
                retry_for_s=20,
            )
        assert "few open files are allowed" in (tmp_path / "log").read_text()
    finally:
        process.terminate()
        process.wait(20)
        process.stdout.close()


@pytest.mark.parametrize("asked", [False, True])
async def test_what_can_be_called_is_told_only_if_that_was_asked_for(tmp_path: Path, asked: bool) -> None:
    plain = ManagerSettings(tmp_path, "127.0.0.1:0")
    server = Server(reflect=True) if asked else Server(reflect=plain.reflection)
    port = server.bind("127.0.0.1:0")
    await server.start()
    try:
        async with aio_channel(f"127.0.0.1:{port}") as channel:
            stub: Any = reflection_pb2_grpc.ServerReflectionStub(channel)
            calls = stub.ServerReflectionInfo(
                iter([reflection_pb2.ServerReflectionRequest(list_services="")]), timeout=10
            )
            if asked:
                assert (await calls.read()).list_services_response.service
            else:
                with pytest.raises(grpc.aio.AioRpcError, match="UNIMPLEMENTED"):
                    await calls.read()
    finally:
        await server.stop(0)
