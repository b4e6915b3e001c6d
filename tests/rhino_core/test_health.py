"""Health over HTTP and gRPC, of a process in this test and of real daemons that lose what they need."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from rhino_core.health import Health
from rhino_core.metrics import CollectorRegistry, exporting
from rhino_core.rpc.channel import sync_channel
from tests.rhino_core.support.health import asked
from tests.rhino_core.support.metrics import Daemon

pytestmark = pytest.mark.timeout(120)
SERVING, NOT_SERVING = health_pb2.HealthCheckResponse.SERVING, health_pb2.HealthCheckResponse.NOT_SERVING


def of_grpc(address: str, service: str = "") -> int:
    with sync_channel(address) as channel:
        request = health_pb2.HealthCheckRequest(service=service)
        return int(health_pb2_grpc.HealthStub(channel).Check(request, timeout=10).status)


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < deadline, "not within 30 s"
        time.sleep(0.1)


async def test_paths_methods_and_codes() -> None:
    health = Health()
    async with exporting(CollectorRegistry(), "127.0.0.1", 0, health) as port:

        async def ask(path: str, method: str = "GET") -> tuple[int, str]:
            return await asyncio.to_thread(asked, port, path, method)

        assert (await ask("/healthz"))[0] == 200
        assert await ask("/readyz") == (503, "failing\nstart: the process is starting\n")
        health.begin({"disk": lambda: ""}, {"manager": lambda: "it is gone"})
        assert await ask("/healthz") == (200, "ok\ndisk: ok\n")
        assert await ask("/readyz") == (503, "failing\ndisk: ok\nmanager: it is gone\n")
        health.begin({"disk": lambda: "no space"}, {})
        assert await ask("/healthz") == (503, "failing\ndisk: no space\n")
        assert await ask("/healthz", "HEAD") == (503, "")
        assert await ask("/metrics", "HEAD") == (200, "")
        assert (await ask("/metrics", "POST"))[0] == 405
        assert (await ask("/other"))[0] == 404


class Pair:
    """A manager and a sidecar."""

    def __init__(self, folder: Path) -> None:
        self.manager = Daemon("manager", "--data-dir", str(folder / "m"), "--listen", "127.0.0.1:0", "--bootstrap")
        address = self.manager.ready["address"]
        self.socket = folder / "sock"
        places = ("--data-dir", str(folder / "s"), "--socket", str(self.socket), "--listen", "127.0.0.1:0")
        self.sidecar = Daemon("sidecar", *places, "--host", "127.0.0.1", "--manager", address)
        self.peer = self.sidecar.ready["peer_address"]


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    made = Pair(tmp_path)
    try:
        yield made
    finally:
        made.sidecar.stop()
        made.manager.stop()


def test_a_sidecar_without_its_manager_is_alive_and_not_ready(pair: Pair) -> None:
    assert asked(pair.sidecar.port, "/readyz")[0] == 200
    until(lambda: of_grpc(pair.peer, "ready") == SERVING)
    assert of_grpc(pair.manager.ready["address"], "ready") == SERVING
    assert pair.manager.stop() == 0
    until(lambda: of_grpc(pair.peer, "ready") == NOT_SERVING)
    status, text = asked(pair.sidecar.port, "/readyz")
    assert (status, "manager: no connection to the manager at" in text) == (503, True)
    assert asked(pair.sidecar.port, "/healthz")[0] == 200
    assert (of_grpc(pair.peer), of_grpc(pair.peer, "rhino.v1.Peer")) == (SERVING, SERVING)
    assert pair.sidecar.samples()["rhino_manager_connected", ()] == 0
    assert pair.sidecar.samples()["rhino_health", (("check", "manager"),)] == 0


@pytest.mark.parametrize("other", [False, True])
def test_a_sidecar_without_its_socket_is_not_alive_until_the_socket_is_back(pair: Pair, other: bool) -> None:
    aside = pair.socket.with_name("aside")
    pair.socket.rename(aside)
    if other:  # as when another sidecar has taken the path
        os.mknod(pair.socket)
    until(lambda: of_grpc(pair.peer) == NOT_SERVING)
    status, text = asked(pair.sidecar.port, "/healthz")
    assert (status, f"socket: {pair.socket} is gone" in text) == (503, True)
    assert asked(pair.sidecar.port, "/readyz")[0] == 503
    aside.rename(pair.socket)
    until(lambda: of_grpc(pair.peer) == SERVING)
    assert asked(pair.sidecar.port, "/healthz")[0] == 200


def test_a_name_that_is_no_service_is_not_found(pair: Pair) -> None:
    with pytest.raises(grpc.RpcError) as refused:
        of_grpc(pair.peer, "nobody")
    assert isinstance(refused.value, grpc.Call)
    assert refused.value.code() is grpc.StatusCode.NOT_FOUND
