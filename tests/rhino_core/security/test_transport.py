"""Attacks on real servers with certificates. Each is refused. A log line names a caller who has an identity."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc
import grpc.aio
import pytest
import pytest_asyncio
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID

from rhino_core.rpc.channel import aio_channel
from rhino_core.security.certificates import Authority, Material
from rhino_core.security.identity import Identity, Role
from rhino_core.security.rights import RIGHTS
from rhino_core.security.transport import PLAIN, THE_MANAGER, Expected, MutualTls, Transport
from rhino_pb import handover_pb2, replication_pb2
from tests.rhino_core import messages
from tests.rhino_core.security.servers import CLUSTER, HOUR, THE_WORKER, Fixed, serving, tls
from tests.rhino_core.support.attacks import NOW, OURS, STRANGERS, Attacker, made

REFUSED = grpc.StatusCode.PERMISSION_DENIED
NO_CONNECTION = grpc.StatusCode.UNAVAILABLE
INPUTS = {f"/{method.containing_service.full_name}/{method.name}": method.input_type for method in messages.methods()}
R, H, P = "/rhino.v1.ReplicationManager/", "/rhino.v1.HandoverManager/", "/rhino.v1.Peer/"
W = "/rhino.v1.Witness/"
MANAGER, WORKER, DRIVER, OPERATOR, READER = Role.MANAGER, Role.WORKER, Role.DRIVER, Role.OPERATOR, Role.READER


@pytest_asyncio.fixture
async def addresses() -> AsyncIterator[tuple[str, str]]:
    async with serving(tls(OURS, MANAGER, "m"), tls(OURS, WORKER, "a")) as found:
        yield found


async def called(address: str, transport: Transport, expected: Expected, method: str, request: Any) -> grpc.StatusCode:
    """The status of a call: UNIMPLEMENTED or INTERNAL come from behind the checks."""
    async with aio_channel(address, transport, expected) as channel:
        call = channel.stream_stream(method, lambda message: message.SerializeToString(), lambda data: data)

        async def requests() -> AsyncIterator[Any]:
            yield request

        try:
            async for _ in call(requests(), timeout=20):
                pass
        except grpc.aio.AioRpcError as error:
            return error.code()
    return grpc.StatusCode.OK


def request_of(method: str, worker: str = "a") -> Any:
    """A well-formed request in which a worker calls itself `worker`."""
    if method == f"{R}RegisterInParts":
        return replication_pb2.RegisterPart(request=request_of(f"{R}Register", worker))
    request = messages.sample(INPUTS[method])
    for name in ("worker_id", "worker", "sender"):
        if name in request.DESCRIPTOR.fields_by_name and RIGHTS[method].names is not None:
            field = getattr(request, name)
            if isinstance(field, str):
                setattr(request, name, worker)
            else:
                field.worker_id = worker
    return request


def place(method: str, addresses: tuple[str, str]) -> tuple[str, Expected]:
    return (addresses[1], THE_WORKER) if method.startswith((P, W)) else (addresses[0], THE_MANAGER)


WRONG_ROLES = [
    *((READER, f"{H}{name}") for name in ("StartHandover", "CancelHandover", "DrainWorker", "MoveCheckpoint")),
    *((READER, f"{H}{name}") for name in ("ForgetJob", "UndoForgetJob", "ForgetWorker")),
    *(
        (READER, method)
        for method in (f"{H}DriverSession", f"{R}Register", f"{P}Fetch", f"{P}StartScrub", f"{P}Branch", f"{P}Archive")
    ),
    *((READER, f"{P}{name}") for name in ("OpenPush", "Inventory", "CheckVersions")),
    *((DRIVER, f"{H}{name}") for name in ("StartHandover", "DrainWorker", "ForgetJob", "ListJobs", "Explain")),
    *((DRIVER, f"{R}{name}") for name in ("Register", "ResolveGroup", "ListWorkers")),
    *(
        (DRIVER, f"{P}{name}")
        for name in ("Fetch", "Inventory", "OpenPush", "StartScrub", "Describe", "Branch", "Archive")
    ),
    *((WORKER, f"{H}{name}") for name in ("DriverSession", "ForgetJob", "StartHandover", "DrainWorker", "ListJobs")),
    *((WORKER, f"{R}{name}") for name in ("ListWorkers", "DescribeGroups")),
    *((WORKER, f"{P}{name}") for name in ("StartScrub", "Describe", "Branch", "Archive")),
    *((OPERATOR, f"{R}{name}") for name in ("Register", "Heartbeat", "ResolveGroup")),
    *((OPERATOR, f"{P}{name}") for name in ("OpenPush", "Fetch", "CheckVersions", "Archive")),
    (OPERATOR, f"{H}DriverSession"),
    *((role, f"{W}{name}") for role in (WORKER, OPERATOR) for name in ("Promise", "Append", "FetchRecords")),
    *((MANAGER, method) for method in (f"{P}Fetch", f"{P}OpenPush", f"{H}ForgetJob", f"{R}Register")),
]


@pytest.mark.parametrize(("role", "method"), WRONG_ROLES, ids=lambda value: getattr(value, "value", value))
async def test_a_role_without_the_right(
    addresses: tuple[str, str], caplog: pytest.LogCaptureFixture, role: Role, method: str
) -> None:
    caplog.set_level(logging.INFO)
    address, expected = place(method, addresses)
    assert await called(address, tls(OURS, role, "a"), expected, method, request_of(method)) is REFUSED
    [record] = [record for record in caplog.records if record.name == "rhino.audit"]
    assert record.__dict__["principal"] == f"rhino://{CLUSTER}/{role.value}/a"
    assert record.__dict__["outcome"] == "AccessDeniedError"
    assert record.levelno == logging.WARNING


@pytest.mark.parametrize("method", [method for method, right in RIGHTS.items() if right.names is not None])
async def test_the_name_of_another_worker(
    addresses: tuple[str, str], caplog: pytest.LogCaptureFixture, method: str
) -> None:
    address, expected = place(method, addresses)
    assert await called(address, tls(OURS, WORKER, "b"), expected, method, request_of(method, "a")) is REFUSED
    [record] = [record for record in caplog.records if record.name == "rhino.audit"]
    assert f"rhino://{CLUSTER}/worker/b speaks for worker 'a'" in record.__dict__["reason"]
    assert record.__dict__["names"]["worker_id"] == "a"


@pytest.mark.parametrize("method", sorted(RIGHTS.keys() & INPUTS.keys()))
async def test_whoever_has_the_right_gets_through(addresses: tuple[str, str], method: str) -> None:
    """Otherwise a server that refuses everything would pass."""
    address, expected = place(method, addresses)
    for role in RIGHTS[method].roles:
        status = await called(address, tls(OURS, role, "a"), expected, method, request_of(method))
        assert status not in (REFUSED, NO_CONNECTION), role


@pytest.mark.parametrize(
    "service", ["grpc.health.v1.Health/Check", "grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"]
)
async def test_services_of_others_need_an_identity_too(addresses: tuple[str, str], service: str) -> None:
    empty = handover_pb2.ListJobsRequest()
    alike = Authority.create(CLUSTER)
    other = Material(OURS.certificate_pem, *_pair(alike.issue(Identity(CLUSTER, OPERATOR, "a"), HOUR)))
    assert await called(addresses[0], MutualTls(Fixed(other)), THE_MANAGER, f"/{service}", empty) is NO_CONNECTION
    assert await called(addresses[0], PLAIN, THE_MANAGER, f"/{service}", empty) is NO_CONNECTION
    ours = tls(OURS, READER)
    assert await called(addresses[0], ours, THE_MANAGER, f"/{service}", empty) not in (REFUSED, NO_CONNECTION)


async def test_reflection_is_for_people(addresses: tuple[str, str]) -> None:
    method = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"
    for role in (WORKER, DRIVER, MANAGER):
        status = await called(addresses[0], tls(OURS, role), THE_MANAGER, method, handover_pb2.ListJobsRequest())
        assert status is REFUSED


def _pair(material: Material) -> tuple[bytes, bytes]:
    return material.certificate, material.key


CERTIFICATES: dict[str, tuple[Callable[[], Material], grpc.StatusCode]] = {
    "none at all": (lambda: Material(b"", b"", b""), NO_CONNECTION),
    "of a strange authority of the same name": (lambda: made(STRANGERS), NO_CONNECTION),
    "signed by itself": (lambda: made(Authority.create("a")), NO_CONNECTION),
    "signed with a worker's key": (
        lambda: made(Authority(OURS.certificate, ec.generate_private_key(ec.SECP256R1()))),
        NO_CONNECTION,
    ),
    "expired": (lambda: made(end=NOW - HOUR / 2), NO_CONNECTION),
    "not valid yet": (lambda: made(start=NOW + HOUR / 2), NO_CONNECTION),
    "for servers only": (lambda: made(usages=(ExtendedKeyUsageOID.SERVER_AUTH,)), NO_CONNECTION),
    "without names": (lambda: made(uris=()), REFUSED),
    "with a DNS name only": (lambda: made(uris=(), dns=(f"a.operator.{CLUSTER}.rhino",)), REFUSED),
    "with the URI as a DNS name": (lambda: made(uris=("https://a",), dns=(f"manager.{CLUSTER}.rhino",)), REFUSED),
    "with two identities": (
        lambda: made(uris=(f"rhino://{CLUSTER}/operator/a", f"rhino://{CLUSTER}/manager/m")),
        REFUSED,
    ),
    "of another cluster": (lambda: made(uris=("rhino://other/operator/a",)), REFUSED),
    "with an unknown role": (lambda: made(uris=(f"rhino://{CLUSTER}/root/a",)), REFUSED),
    "with a path as name": (lambda: made(uris=(f"rhino://{CLUSTER}/operator/../a",)), REFUSED),
    "with capitals": (lambda: made(uris=(f"rhino://{CLUSTER}/OPERATOR/a",)), REFUSED),
    "with another scheme": (lambda: made(uris=(f"spiffe://{CLUSTER}/operator/a",)), REFUSED),
}


@pytest.mark.parametrize("kind", CERTIFICATES)
async def test_a_certificate(addresses: tuple[str, str], kind: str) -> None:
    make, status = CERTIFICATES[kind]
    request = handover_pb2.ListJobsRequest()
    attacker: Any = Attacker(make())
    assert await called(addresses[0], attacker, THE_MANAGER, f"{H}ListJobs", request) is status


async def test_the_certificate_that_these_are_compared_with(addresses: tuple[str, str]) -> None:
    attacker: Any = Attacker(made())
    status = await called(addresses[0], attacker, THE_MANAGER, f"{H}ListJobs", handover_pb2.ListJobsRequest())
    assert status not in (REFUSED, NO_CONNECTION)


SERVERS: dict[str, Callable[[], MutualTls]] = {
    "another worker": lambda: tls(OURS, WORKER, "b"),
    "the manager": lambda: tls(OURS, MANAGER, "a"),
    "an operator of the same name": lambda: tls(OURS, OPERATOR, "a"),
    "a worker of a strange authority": lambda: tls(STRANGERS, WORKER, "a"),
    "a worker of another cluster": lambda: tls(Authority.create("other"), WORKER, "a"),
}


@pytest.mark.parametrize("kind", SERVERS)
async def test_a_server_that_is_not_who_it_should_be(kind: str) -> None:
    """A push or a fetch to worker a, at an address where somebody else listens."""
    async with serving(tls(OURS, MANAGER, "m"), SERVERS[kind]()) as (_, address):
        status = await called(address, tls(OURS, WORKER, "c"), THE_WORKER, f"{P}Fetch", request_of(f"{P}Fetch"))
        assert status is NO_CONNECTION


async def test_a_sidecar_at_the_address_of_the_manager(addresses: tuple[str, str]) -> None:
    request = replication_pb2.RegisterRequest()
    request.worker.worker_id = "c"
    worker = tls(OURS, WORKER, "c")
    assert await called(addresses[1], worker, THE_MANAGER, f"{R}Register", request) is NO_CONNECTION


async def test_plain_text_in_both_directions(addresses: tuple[str, str]) -> None:
    request = handover_pb2.ListJobsRequest()
    assert await called(addresses[0], PLAIN, THE_MANAGER, f"{H}ListJobs", request) is NO_CONNECTION
    async with serving(PLAIN, PLAIN) as (plain, _):
        status = await called(plain, tls(OURS, OPERATOR), THE_MANAGER, f"{H}ListJobs", request)
        assert status is NO_CONNECTION, "a client with a certificate never falls back to plain text"


async def test_connections_after_a_renewal(addresses: tuple[str, str]) -> None:
    """Servers and clients use new certificates without a restart, of a new authority as well."""
    new = Authority.create(CLUSTER)
    both = OURS.certificate_pem + new.certificate_pem

    def trusting_both(material: Material) -> Material:
        return Material(both, material.certificate, material.key)

    def issued(authority: Authority, role: Role, name: str) -> Material:
        return trusting_both(authority.issue(Identity(CLUSTER, role, name), HOUR))

    server, client = Fixed(issued(OURS, MANAGER, "m")), Fixed(issued(OURS, OPERATOR, "a"))
    transport = MutualTls(client)
    request = handover_pb2.ListJobsRequest()
    async with serving(MutualTls(server), tls(OURS, WORKER)) as (address, _):
        first = transport.edition
        for place_of, role, name in ((server, MANAGER, "m"), (client, OPERATOR, "a")):
            place_of.material = issued(new, role, name)
            status = await called(address, transport, THE_MANAGER, f"{H}ListJobs", request)
            assert status not in (REFUSED, NO_CONNECTION)
        assert transport.edition == first + 1
        only_old = tls(OURS, OPERATOR, "a")
        assert await called(address, only_old, THE_MANAGER, f"{H}ListJobs", request) is NO_CONNECTION
