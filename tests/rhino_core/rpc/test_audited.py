"""What real servers write to the audit log: one line for each call that matters, and no secret."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from replication_manager.service.service import ReplicationService
from rhino_core.errors import PreconditionError
from rhino_core.journal import Journal
from rhino_core.rpc.channel import aio_channel
from rhino_core.rpc.server import Server
from rhino_core.security.audit import AuditLog
from rhino_core.security.identity import Role
from rhino_core.security.transport import PLAIN, THE_MANAGER, Transport
from rhino_core.settings import ManagerSettings
from rhino_core.version import PROTOCOL
from rhino_pb import common_pb2, handover_pb2_grpc, peer_pb2, peer_pb2_grpc, replication_pb2, replication_pb2_grpc
from rhino_pb import handover_pb2 as pb
from tests.handover_manager.cluster import END_OF_STREAM
from tests.rhino_core.security.servers import CLUSTER, THE_WORKER, serving, tls
from tests.rhino_core.support.attacks import OURS, Attacker, made

H = "/rhino.v1.HandoverManager/"
SECRET = "feedfacecafe"
Stub = Any


class Handovers(handover_pb2_grpc.HandoverManagerServicer):
    """Each method has another end."""

    async def StartHandover(self, request: pb.HandoverRequest, context: Any) -> pb.HandoverStatus:
        return pb.HandoverStatus(handover_id="h1")

    async def CancelHandover(self, request: pb.CancelHandoverRequest, context: Any) -> pb.HandoverStatus:
        raise PreconditionError("handover h1 is confirmed")

    async def ForgetJob(self, request: common_pb2.ForgetJobRequest, context: Any) -> common_pb2.ForgetJobReply:
        if request.now:
            raise KeyError(SECRET)  # a bug; its text is for the ordinary log only
        return common_pb2.ForgetJobReply(job="0a1b")

    async def DrainWorker(self, request: pb.DrainRequest, context: Any) -> pb.DrainStatus:
        await asyncio.sleep(60)
        raise AssertionError("the caller waits no longer")

    async def ListJobs(self, request: pb.ListJobsRequest, context: Any) -> pb.ListJobsReply:
        return pb.ListJobsReply()

    async def DriverSession(self, requests: Any, context: Any) -> AsyncIterator[pb.DriverCommand]:
        hello = await anext(aiter(requests))
        if hello.hello.host == "refused":
            raise PreconditionError("too few workers")
        yield pb.DriverCommand(welcome=pb.DriverWelcome(generation=1, token=SECRET))
        async for _ in requests:
            yield pb.DriverCommand(probe=pb.DriverProbe())


class Audited:
    """Servers with an audit log, and what is in it."""

    def __init__(self, file: Path, addresses: tuple[str, str]) -> None:
        self._file = file
        self.addresses = addresses

    @asynccontextmanager
    async def manager(self, role: Role | Transport, name: str = "alice") -> AsyncIterator[Stub]:
        transport = tls(OURS, role, name) if isinstance(role, Role) else role
        async with aio_channel(self.addresses[0], transport, THE_MANAGER) as channel:
            yield handover_pb2_grpc.HandoverManagerStub(channel)

    @asynccontextmanager
    async def worker(self, role: Role, name: str = "alice") -> AsyncIterator[Stub]:
        async with aio_channel(self.addresses[1], tls(OURS, role, name), THE_WORKER) as channel:
            yield peer_pb2_grpc.PeerStub(channel)

    async def lines(self, count: int) -> list[dict[str, Any]]:
        """Waits for so many lines: a server may end a call after its client. There must not be more."""
        async with asyncio.timeout(20):
            while len(found := self._file.read_text().splitlines()) < count:  # noqa: ASYNC110  a file tells nobody
                await asyncio.sleep(0.01)
        assert SECRET not in self._file.read_text()
        return [json.loads(line) for line in found]

    async def line(self) -> dict[str, Any]:
        [found] = await self.lines(1)
        assert found["peer"].startswith("ipv4:127.0.0.1:")
        assert 0 <= found["duration_s"] < 30
        return found


@asynccontextmanager
async def audited(folder: Path, *, plain: bool = False) -> AsyncIterator[Audited]:
    file = folder / "audit.log"
    log = AuditLog(str(file))
    manager = PLAIN if plain else tls(OURS, Role.MANAGER, "m")
    worker = PLAIN if plain else tls(OURS, Role.WORKER, "a")
    async with serving(manager, worker, log, Handovers) as addresses:
        yield Audited(file, addresses)
    log.close()


async def failing(call: Awaitable[Any]) -> grpc.StatusCode:
    with pytest.raises(grpc.aio.AioRpcError) as error:
        await call
    return error.value.code()


def told(line: dict[str, Any]) -> tuple[str, str, str]:
    return line["principal"], line["method"].removeprefix(H), line["outcome"]


async def test_a_permitted_call(tmp_path: Path) -> None:
    async with audited(tmp_path) as seen, seen.manager(Role.OPERATOR) as stub:
        nodes = [f"0/{number}" for number in range(50)]
        await stub.StartHandover(pb.HandoverRequest(job="q", virtual_nodes=nodes, target="b"))
        await stub.ListJobs(pb.ListJobsRequest())  # changes nothing
        line = await seen.line()
        assert told(line) == ("rhino://c/operator/alice", "StartHandover", "ok")
        assert line["names"] == {
            "job": "q",
            "virtual_nodes": [*nodes[:20], "and 30 more"],
            "target": "b",
            "handover_id": "h1",
        }
        assert "reason" not in line


async def test_an_intent(tmp_path: Path) -> None:
    async with audited(tmp_path) as seen, seen.manager(Role.OPERATOR) as stub:
        await stub.StartHandover(pb.HandoverRequest(job="q", scale_in=pb.ScaleInIntent(workers=["a", "b"])))
        line = await seen.line()
        assert line["names"] == {"job": "q", "intent": "scale_in", "workers": ["a", "b"], "handover_id": "h1"}


async def test_the_id_for_the_name_of_a_query(tmp_path: Path) -> None:
    async with audited(tmp_path) as seen, seen.manager(Role.OPERATOR) as stub:
        await stub.ForgetJob(common_pb2.ForgetJobRequest(job="my query", dry_run=True))
        line = await seen.line()
        assert line["names"] == {"job": "my query", "dry_run": True, "job_found": "0a1b"}


@pytest.mark.parametrize(
    ("ask", "names", "outcome", "reason"),
    [
        (
            lambda stub: stub.CancelHandover(pb.CancelHandoverRequest(handover_id="h1")),
            {"handover_id": "h1"},
            "PreconditionError",
            "handover h1 is confirmed",
        ),
        (
            lambda stub: stub.ForgetJob(common_pb2.ForgetJobRequest(job="q", now=True)),
            {"job": "q", "now": True},
            "KeyError",
            "internal error",
        ),
        (
            lambda stub: stub.ForgetWorker(common_pb2.ForgetWorkerRequest(worker_id="../w")),
            {"worker_id": "../w"},
            "InvalidRequestError",
            "worker_id",
        ),
    ],
)
async def test_a_failed_call(
    tmp_path: Path, ask: Callable[[Stub], Awaitable[Any]], names: dict[str, str], outcome: str, reason: str
) -> None:
    async with audited(tmp_path) as seen, seen.manager(Role.OPERATOR) as stub:
        await failing(ask(stub))
        line = await seen.line()
        assert (line["principal"], line["names"], line["outcome"]) == ("rhino://c/operator/alice", names, outcome)
        assert reason in line["reason"]


async def test_a_call_whose_caller_waits_no_longer(tmp_path: Path) -> None:
    """It may have changed something."""
    async with audited(tmp_path) as seen, seen.manager(Role.OPERATOR) as stub:
        asked = stub.DrainWorker(pb.DrainRequest(worker="w"), timeout=0.2)
        assert await failing(asked) is grpc.StatusCode.DEADLINE_EXCEEDED
        line = await seen.line()
        assert (told(line)[1:], line["names"]) == (("DrainWorker", "cancelled"), {"worker": "w"})


async def test_a_role_without_the_right(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with audited(tmp_path) as seen, seen.manager(Role.READER, "bob") as stub:
        await failing(stub.ForgetJob(common_pb2.ForgetJobRequest(job="q")))
        line = await seen.line()
        assert told(line) == ("rhino://c/reader/bob", "ForgetJob", "AccessDeniedError")
        assert line["names"] == {"job": "q"}
        assert "may not call it; allowed: operator" in line["reason"]
        assert [record.levelno for record in caplog.records if record.name == "rhino.audit"] == [logging.WARNING]


async def test_a_refused_reader_of_what_changes_nothing(tmp_path: Path) -> None:
    """Of a stream too, and of services of others."""
    async with audited(tmp_path) as seen:
        async with seen.manager(Role.DRIVER, "etl") as stub:
            await failing(stub.ListJobs(pb.ListJobsRequest()))
            await failing(anext(aiter(stub.WatchHandover(pb.WatchHandoverRequest(handover_id="h")))))
        async with seen.manager(Role.READER) as stub:
            await failing(anext(aiter(stub.DriverSession(iter([pb.DriverEvent()])))))
        lines = await seen.lines(3)
        assert [told(line)[1:] for line in lines] == [
            ("ListJobs", "AccessDeniedError"),
            ("WatchHandover", "AccessDeniedError"),
            ("DriverSession", "AccessDeniedError"),
        ]


@pytest.mark.parametrize("uri", ["rhino://other/operator/eve", f"rhino://{CLUSTER}/root/eve"])
async def test_a_certificate_that_does_not_count(tmp_path: Path, uri: str) -> None:
    """Our authority has signed it, so the connection stands."""
    eve: Any = Attacker(made(uris=(uri,)))
    async with audited(tmp_path) as seen, seen.manager(eve) as stub:
        await failing(stub.ForgetJob(common_pb2.ForgetJobRequest(job="q")))
        line = await seen.line()
        assert told(line) == ("", "ForgetJob", "AccessDeniedError")
        assert uri in line["reason"]


async def test_a_request_that_cannot_be_read(tmp_path: Path) -> None:
    async with audited(tmp_path) as seen:
        transport = tls(OURS, Role.OPERATOR, "alice")
        async with aio_channel(seen.addresses[0], transport, THE_MANAGER) as channel:
            call: Any = channel.unary_unary(f"{H}ForgetJob", None, None)
            await failing(call(b"\xff" * 50))
        line = await seen.line()
        assert told(line) == ("rhino://c/operator/alice", "ForgetJob", "InvalidRequestError")
        assert (line["names"], "not a request of this method" in line["reason"]) == ({}, True)


async def test_another_worker_s_name(tmp_path: Path) -> None:
    async with audited(tmp_path) as seen, seen.worker(Role.WORKER, "b") as stub:
        sender = common_pb2.Worker(worker_id="a", incarnation="a/1", host="a", peer_address="a:1")
        await failing(stub.OpenPush(peer_pb2.OpenPushRequest(sender=sender, lane=peer_pb2.LANE_BULK)))
        line = await seen.line()
        assert told(line) == ("rhino://c/worker/b", "/rhino.v1.Peer/OpenPush", "AccessDeniedError")
        assert line["names"]["worker_id"] == "a"


async def test_a_cluster_without_certificates(tmp_path: Path) -> None:
    async with audited(tmp_path, plain=True) as seen, seen.manager(PLAIN) as stub:
        await stub.StartHandover(pb.HandoverRequest(job="q"))
        assert told(await seen.line()) == ("", "StartHandover", "ok")


def hello(host: str = "h") -> pb.DriverEvent:
    about = pb.DriverHello(application_id="app-1", host=host, former_token=SECRET, spark_version="4.2.0")
    return pb.DriverEvent(hello=about)


@pytest.mark.parametrize("closes", [True, False])
async def test_a_driver_s_session(tmp_path: Path, closes: bool) -> None:
    async with audited(tmp_path) as seen, seen.manager(Role.DRIVER, "etl") as stub:
        call = stub.DriverSession()
        await call.write(hello())
        assert (await call.read()).welcome.generation == 1
        [accepted] = await seen.lines(1)
        await call.write(pb.DriverEvent(query_ended=pb.QueryEnded(job="0a", run_id="r")))
        await call.read()
        if closes:
            await call.done_writing()
            assert await call.read() is END_OF_STREAM
        else:
            call.cancel()
            with suppress(asyncio.CancelledError):
                await call.code()
        first, last = await seen.lines(2)
        assert first == accepted
        assert [told(line) for line in (first, last)] == [
            ("rhino://c/driver/etl", "DriverSession", "accepted"),
            ("rhino://c/driver/etl", "DriverSession", "ended"),
        ]
        assert first["names"] == last["names"] == {"application_id": "app-1", "host": "h"}


async def test_a_session_that_is_not_accepted(tmp_path: Path) -> None:
    async with audited(tmp_path) as seen, seen.manager(Role.DRIVER, "etl") as stub:
        call = stub.DriverSession()
        await call.write(hello("refused"))
        await failing(call.read())
        line = await seen.line()
        assert (line["outcome"], line["reason"]) == ("PreconditionError", "too few workers")
        assert line["names"]["application_id"] == "app-1"


async def test_registrations(tmp_path: Path) -> None:
    """Only of a worker that is new, has another address or another store."""
    file = tmp_path / "audit.log"
    audit, journal = AuditLog(str(file)), Journal(tmp_path / "data", bootstrap=True)
    server = Server(transport=tls(OURS, Role.MANAGER, "m"), audit=audit)
    service = ReplicationService(journal, ManagerSettings(tmp_path, "127.0.0.1:0"))
    service.attach(server)
    running = asyncio.create_task(service.run())
    address = f"127.0.0.1:{server.bind('127.0.0.1:0')}"
    await server.start()
    try:
        secrets = []
        async with aio_channel(address, tls(OURS, Role.WORKER, "a"), THE_MANAGER) as channel:
            stub = replication_pb2_grpc.ReplicationManagerStub(channel)
            for incarnation, peer in (("a/1", "a:1"), ("a/1", "a:1"), ("a/1", "b:1"), ("a/2", "b:1"), ("a/2", "b:1")):
                named = common_pb2.Worker(worker_id="a", incarnation=incarnation, host="a", peer_address=peer)
                reply = await stub.Register(
                    replication_pb2.RegisterRequest(worker=named, process_id="p", protocol=PROTOCOL)
                )
                assert len(reply.lease) >= 16
                secrets.append(reply.lease)
    finally:
        running.cancel()
        await server.stop(0)
        journal.close()
        audit.close()
    text = file.read_text()
    assert not [secret for secret in secrets if secret.hex() in text or repr(secret)[2:-1] in text]
    lines = [json.loads(line) for line in text.splitlines()]
    assert {(line["principal"], line["outcome"]) for line in lines} == {("rhino://c/worker/a", "ok")}
    assert [(line["names"]["peer_address"], line["names"]["former"]) for line in lines] == [
        ("a:1", ""),
        ("b:1", "a:1 a/1"),
        ("b:1", "b:1 a/1"),
    ]
