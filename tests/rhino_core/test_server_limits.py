"""What Rhino's servers let a connection do."""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from replication_manager.service.service import ReplicationService
from rhino_core.errors import RemoteProtocolError
from rhino_core.journal import Journal
from rhino_core.rpc.channel import REQUEST_BYTES_MAX, aio_channel, call, call_sync, sync_channel
from rhino_core.rpc.server import Server
from rhino_core.setting import MIB
from rhino_core.settings import ManagerSettings
from rhino_pb import common_pb2, replication_pb2, replication_pb2_grpc
from tests.rhino_core.test_metrics import free_port


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


async def test_only_registrations_and_the_like_may_be_large(tmp_path: Path) -> None:
    """Others are not even parsed; a sidecar's server takes none."""
    journal = Journal(tmp_path, bootstrap=True)
    server = Server(request_bytes_max=64 * MIB)
    service = ReplicationService(journal, ManagerSettings(tmp_path, "127.0.0.1:0"))
    service.attach(server)
    running = asyncio.create_task(service.run())
    port = server.bind("127.0.0.1:0")
    await server.start()
    try:
        async with aio_channel(f"127.0.0.1:{port}") as channel:
            stub = replication_pb2_grpc.ReplicationManagerStub(channel)
            named = common_pb2.Worker(worker_id="a", incarnation="a/1", host="a", peer_address="a:1")
            request = replication_pb2.RegisterRequest(worker=named, process_id="a")
            for number in range(35_000):
                request.groups.add(group=common_pb2.GroupId(job="j" * 120, operator=0, partition=number))
            assert request.ByteSize() > REQUEST_BYTES_MAX
            assert (await stub.Register(request, timeout=30)).generation
            too_large = replication_pb2.DescribeGroupsRequest(job="j" * (REQUEST_BYTES_MAX + 1))
            with pytest.raises(grpc.aio.AioRpcError, match=f"at most {REQUEST_BYTES_MAX} are allowed") as refused:
                await stub.DescribeGroups(too_large, timeout=30)
            assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
            beyond_all = replication_pb2.DescribeGroupsRequest(job="j" * (64 * MIB))
            with pytest.raises(RemoteProtocolError, match=r"the manager: .*message larger than max"):
                await call("the manager", lambda: stub.DescribeGroups(beyond_all, timeout=30))
    finally:
        running.cancel()
        await server.stop(0)
        journal.close()


@pytest.mark.timeout(60)
def test_silent_connections_end_no_manager(tmp_path: Path) -> None:
    """More of them than it may have open files, at the port of its service and that of its metrics."""
    metrics = free_port()
    command = f"ulimit -n 100 && exec {sys.executable} -m rhino.cli.main manager --data-dir {tmp_path / 'm'} "
    command += f"--listen 127.0.0.1:0 --bootstrap --metrics-port {metrics} --exit-with-parent"
    with (tmp_path / "log").open("w") as log:
        process = subprocess.Popen(["bash", "-c", command], stdout=subprocess.PIPE, stderr=log, text=True)
    assert process.stdout is not None
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
        assert process.poll() is None
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
