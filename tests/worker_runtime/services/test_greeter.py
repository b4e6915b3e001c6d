"""Who may attach to a sidecar's Unix socket, and what its logs say of it."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import grpc
import grpc.aio
import pytest

from rhino_core.errors import AccessDeniedError, InvalidSettingError
from rhino_core.ids import StoreId
from rhino_core.rpc import greeting
from rhino_core.rpc.channel import aio_channel
from rhino_core.rpc.convert import store_to_pb
from rhino_core.security.audit import AuditLog
from rhino_pb import common_pb2, sidecar_pb2, sidecar_pb2_grpc
from tests.worker_runtime.cluster import Cluster, Process
from worker_runtime.services import greeter as module
from worker_runtime.services.greeter import TOKEN_S, TOKENS_MAX, Greeter, allowed_users
from worker_runtime.services.local_socket import LocalSocket

ME = os.geteuid()
REFUSED = grpc.StatusCode.PERMISSION_DENIED


class Clock:
    """Monotonic seconds that a test sets."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


def greeter(*, clock: Clock | None = None, **allowed: int) -> Greeter:
    return Greeter(frozenset(allowed.values()), AuditLog(), clock or Clock())


def token_of(answer: bytes) -> bytes:
    return greeting.token_in(answer, Path("s"))


def test_a_token_counts_once_for_its_user() -> None:
    asked = greeter(me=7, root=0)
    mine, roots = token_of(asked.answer(7, 1)), token_of(asked.answer(0, 1))
    assert (asked.redeem(mine), asked.redeem(roots)) == (7, 0)
    for used in (mine, roots):
        with pytest.raises(AccessDeniedError, match="is unknown, was used"):
            asked.redeem(used)


def test_a_token_counts_for_a_minute_as_a_starting_jvm_may_be_slow() -> None:
    clock = Clock()
    asked = greeter(me=7, clock=clock)
    used, token = token_of(asked.answer(7, 1)), token_of(asked.answer(7, 1))
    clock.now += 59
    assert asked.redeem(used) == 7
    clock.now += TOKEN_S - 59
    with pytest.raises(AccessDeniedError, match="older than 60 s; an executor attaches again"):
        asked.redeem(token)


def test_tokens_that_nobody_uses_do_not_pile_up() -> None:
    asked = greeter(me=7)
    first, *_, last = [token_of(asked.answer(7, 1)) for _ in range(TOKENS_MAX + 1)]
    with pytest.raises(AccessDeniedError):
        asked.redeem(first)
    assert asked.redeem(last) == 7


def test_another_user_is_refused_with_a_line(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(AccessDeniedError, match="the Unix user 65534 is not in --allow-uid"):
        token_of(greeter(me=7).answer(65534, 4711))
    [record] = [record for record in caplog.records if record.name == "rhino.audit"]
    assert (record.__dict__["principal"], record.__dict__["names"]) == ("uid:65534", {"pid": 4711})
    assert record.levelno == logging.WARNING


@pytest.mark.parametrize("token", [b"", b"x", bytes(16), bytes(64)])
def test_a_made_up_token(token: bytes) -> None:
    with pytest.raises(AccessDeniedError):
        greeter(me=7).redeem(token)


def test_names_and_numbers_of_users() -> None:
    assert allowed_users("") == {0, ME}
    assert allowed_users("root, 65534,") == {0, ME, 65534}
    with pytest.raises(ValueError, match="no Unix user 'nobody-at-all'"):
        allowed_users("nobody-at-all")


async def test_the_kernel_says_who_connects(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    asked = greeter(someone=12345)
    LocalSocket(greeting.greeter_path(tmp_path / "s")).bind(asked.bind)
    await asked.start()
    try:
        with pytest.raises(AccessDeniedError, match=f"the Unix user {ME} is not in --allow-uid"):
            await asyncio.to_thread(greeting.ask, tmp_path / "s")
        assert f"'pid': {os.getpid()}" in str(caplog.records[-1].__dict__["names"])
    finally:
        asked.close()


def test_a_socket_where_executors_would_not_look(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    with pytest.raises(InvalidSettingError, match=f"executors refuse it: others .* can write to {tmp_path}"):
        LocalSocket(tmp_path / "s").bind(lambda address: None)


async def attached(sidecar: Process, token: bytes) -> grpc.StatusCode:
    try:
        async with sidecar.attach(token=token) as client:
            await client.stub.Stat(
                sidecar_pb2.StatRequest(
                    store=store_to_pb(StoreId("job", 0, 0, "default")),
                    name="1_a.zip",
                    session_id=client.info.session_id,
                )
            )
    except grpc.aio.AioRpcError as error:
        return error.code()
    return grpc.StatusCode.OK


async def test_a_sidecar_with_other_users(tmp_path: Path) -> None:
    """The token is needed, counts once, and both logs know the user; neither has the secret id of the session."""
    audit = tmp_path / "audit.log"
    async with asyncio.timeout(100), Cluster(tmp_path) as cluster:
        [sidecar] = await cluster.start("a", allow_uid="65534", audit_log=str(audit))
        token = await asyncio.to_thread(greeting.ask, sidecar.settings.socket)
        assert await attached(sidecar, token) is grpc.StatusCode.OK
        while '"ended"' not in audit.read_text():  # noqa: ASYNC110  a client has left before its sidecar sees that
            await asyncio.sleep(0.01)
        for wrong in (token, b"", bytes(16)):
            assert await attached(sidecar, wrong) is REFUSED
        async with aio_channel(f"unix://{sidecar.settings.socket}") as channel:
            stub = sidecar_pb2_grpc.SidecarStub(channel)
            store = store_to_pb(StoreId("job", 0, 0, "default"))
            with pytest.raises(grpc.aio.AioRpcError, match="is not attached"):
                await stub.List(sidecar_pb2.ListRequest(store=store), timeout=10)
            with pytest.raises(grpc.aio.AioRpcError, match="is not attached"):
                await stub.Stat(sidecar_pb2.StatRequest(store=store, name="1_a.zip"), timeout=10)
            async with sidecar.attach() as client:
                secret = client.info.session_id
                version = common_pb2.StoreVersion(store=store, version=common_pb2.Version(version=0))
                asked = sidecar_pb2.PrepareRequest(session_id=secret, versions=[version])
                await client.stub.Prepare(asked, timeout=20)
            described = await stub.Describe(sidecar_pb2.DescribeRequest(prepares_max=10, commits_max=10), timeout=10)
            assert dict(described.prepares_by_source) == {"empty": 1}
            assert not described.prepares, "they name the jobs of other users"
        await sidecar.end()
    log = (sidecar.settings.data_dir.parent / "log").read_text()
    lines = [json.loads(line) for line in audit.read_text().splitlines()]
    found = [(line["principal"], line["outcome"]) for line in lines if line["method"].endswith("/Attach")]
    assert found[:2] == [(f"uid:{ME}", "accepted"), (f"uid:{ME}", "ended")]
    assert ("", "AccessDeniedError") in found
    assert f'"uid": {ME}' in log
    assert secret not in log + audit.read_text()


AS_NOBODY = """
import os, socket, sys
os.setgroups([]); os.setgid(65534); os.setuid(65534)
for path in sys.argv[1:]:
    with socket.socket(socket.AF_UNIX) as s:
        try:
            s.connect(path)
            print(s.recv(600))
        except PermissionError:
            print("no permission")
"""


@pytest.mark.skipif(ME != 0, reason="only root can be another user")
async def test_another_user_of_the_machine() -> None:
    with tempfile.TemporaryDirectory(prefix="rhino-") as folder:
        path = Path(folder, "s")
        Path(folder).chmod(0o755)
        asked = greeter(me=ME)
        place = LocalSocket(greeting.greeter_path(path))
        place.bind(asked.bind)
        await asked.start()
        try:
            command = [sys.executable, "-c", AS_NOBODY, str(place.path)]

            def told() -> str:
                return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout

            assert await asyncio.to_thread(told) == "no permission\n"
            place.path.chmod(0o666)
            assert "the Unix user 65534 is not in --allow-uid" in await asyncio.to_thread(told)
        finally:
            asked.close()


async def test_silent_connections_cost_nothing(tmp_path: Path) -> None:
    """The greeter answers and closes, whether anybody reads or not."""
    asked = greeter(me=ME)
    path = greeting.greeter_path(tmp_path / "s")
    LocalSocket(path).bind(asked.bind)
    await asked.start()
    connections = [socket.socket(socket.AF_UNIX) for _ in range(300)]
    try:
        before = len(os.listdir("/proc/self/fd"))
        for connection in connections:
            await asyncio.to_thread(connection.connect, str(path))
        for _ in range(200):
            await asyncio.sleep(0.01)
            if len(os.listdir("/proc/self/fd")) <= before + 1:
                break
        assert len(os.listdir("/proc/self/fd")) <= before + 1
        assert module.TOKENS_MAX >= 300
    finally:
        for connection in connections:
            connection.close()
        asked.close()
