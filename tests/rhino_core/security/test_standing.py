"""Certificates that have ended, lost their authority or are refused by name: also on connections that are open."""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import AsyncIterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec

from rhino_core.errors import AccessDeniedError, InvalidSettingError
from rhino_core.rpc import guard
from rhino_core.rpc.channel import aio_channel
from rhino_core.rpc.server import Server
from rhino_core.security.certificates import Authority, Material
from rhino_core.security.choice import daemon_transport
from rhino_core.security.identity import Identity, Role
from rhino_core.security.sources import KeySource, new_cluster_key, read_cluster_key
from rhino_core.security.standing import LOOK_S, RefusedNames, Standing
from rhino_core.security.transport import THE_MANAGER, MutualTls
from rhino_core.settings import ManagerSettings
from rhino_pb import replication_pb2, replication_pb2_grpc
from tests.rhino_core.security.servers import CLUSTER, HOUR, Fixed

NOW = dt.datetime.now(dt.UTC)
OPERATOR = Identity(CLUSTER, Role.OPERATOR, "alice")


class Clock:
    """Both clocks of `Standing`."""

    def __init__(self) -> None:
        self.s = 0.0

    def wall(self) -> dt.datetime:
        return NOW + dt.timedelta(seconds=self.s)

    def monotonic(self) -> float:
        return self.s


def standing(material: Material, refused: RefusedNames | None = None) -> tuple[Standing, Fixed, Clock]:
    source, clock = Fixed(material), Clock()
    return Standing(source, refused, clock.wall, clock.monotonic), source, clock


def of(authority: Authority, role: Role = Role.MANAGER) -> Material:
    return authority.issue(Identity(CLUSTER, role, "m"), HOUR)


def test_a_certificate_counts_until_it_ends() -> None:
    authority = Authority.create(CLUSTER)
    checks, _, clock = standing(of(authority))
    chain = authority.issue(OPERATOR, dt.timedelta(minutes=10), now=NOW).certificate
    clock.s = 590
    checks.check(OPERATOR, chain)
    clock.s = 601
    with pytest.raises(AccessDeniedError, match="alice has ended at"):
        checks.check(OPERATOR, chain)


def test_a_replaced_authority_counts_no_longer_and_two_count_both() -> None:
    old, new = Authority.create(CLUSTER), Authority.create(CLUSTER)
    checks, source, clock = standing(of(old))
    chain = old.issue(OPERATOR, HOUR).certificate
    checks.check(OPERATOR, chain)
    after = of(new)
    source.material = Material(old.certificate_pem + new.certificate_pem, after.certificate, after.key)
    clock.s += LOOK_S
    checks.check(OPERATOR, chain)
    checks.check(OPERATOR, new.issue(OPERATOR, HOUR).certificate)
    source.material = after
    clock.s += LOOK_S
    with pytest.raises(AccessDeniedError, match="not from an authority that counts now"):
        checks.check(OPERATOR, chain)


def intermediate(root: Authority, valid: dt.timedelta) -> Authority:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, CLUSTER)])
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(root.certificate.subject)
    builder = builder.public_key(key.public_key()).serial_number(7).not_valid_before(NOW).not_valid_after(NOW + valid)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    return Authority(builder.sign(root.key, hashes.SHA256()), key)


def test_an_intermediate_authority_is_followed_and_may_end_first() -> None:
    root = Authority.create(CLUSTER)
    between = intermediate(root, dt.timedelta(minutes=5))
    checks, _, clock = standing(of(root))
    leaf = between.issue(OPERATOR, HOUR).certificate
    chain = leaf + between.certificate_pem
    checks.check(OPERATOR, chain)
    with pytest.raises(AccessDeniedError, match="not from an authority"):
        checks.check(OPERATOR, leaf)
    stranger = intermediate(Authority.create(CLUSTER), HOUR)
    with pytest.raises(AccessDeniedError, match="not from an authority"):
        checks.check(OPERATOR, stranger.issue(OPERATOR, HOUR).certificate + between.certificate_pem)
    clock.s = 301
    with pytest.raises(AccessDeniedError, match="has ended"):
        checks.check(OPERATOR, chain)


def test_a_name_is_refused_as_long_as_the_file_has_it(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "refused"
    with pytest.raises(InvalidSettingError, match="No such file"):
        RefusedNames(file)
    file.write_text("nobody\n")
    with pytest.raises(InvalidSettingError, match="must have one URI"):
        RefusedNames(file)
    file.write_text("# lost laptops\n")
    authority = Authority.create(CLUSTER)
    checks, _, clock = standing(of(authority), RefusedNames(file))
    chain = authority.issue(OPERATOR, HOUR).certificate
    checks.check(OPERATOR, chain)
    file.write_text(f"# lost laptops\n{OPERATOR.uri}  # stolen on Monday\n")
    clock.s += LOOK_S
    with pytest.raises(AccessDeniedError, match="refused by name"):
        checks.check(OPERATOR, chain)
    file.unlink()
    clock.s += LOOK_S
    with pytest.raises(AccessDeniedError, match="refused by name"):
        checks.check(OPERATOR, chain)
    assert "the refused names stay as they were" in caplog.text
    file.write_text("\n")
    clock.s += LOOK_S
    checks.check(OPERATOR, chain)


class Groups(replication_pb2_grpc.ReplicationManagerServicer):
    async def ListWorkers(self, request: Any, context: Any) -> replication_pb2.ListWorkersReply:
        return replication_pb2.ListWorkersReply()

    async def WatchGroups(self, request: Any, context: Any) -> AsyncIterator[replication_pb2.GroupUpdate]:
        yield replication_pb2.GroupUpdate()
        await asyncio.Event().wait()


def _groups() -> Any:
    """A servicer whose other methods fail."""
    made: Any = Groups
    return made()


async def test_an_open_connection_and_its_stream_end_with_the_authority(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "RECHECK_S", 0.1)
    old, new = Authority.create(CLUSTER), Authority.create(CLUSTER)
    source = Fixed(of(old))
    server = Server(transport=MutualTls(source))
    server.add(replication_pb2_grpc.add_ReplicationManagerServicer_to_server, _groups(), "rhino.v1.ReplicationManager")
    port = server.bind("127.0.0.1:0")
    await server.start()
    operator = MutualTls(Fixed(old.issue(OPERATOR, HOUR)))
    worker = MutualTls(Fixed(old.issue(Identity(CLUSTER, Role.WORKER, "a"), HOUR)))
    async with (
        aio_channel(f"127.0.0.1:{port}", operator, THE_MANAGER) as asks,
        aio_channel(f"127.0.0.1:{port}", worker, THE_MANAGER) as watches,
    ):
        stub = replication_pb2_grpc.ReplicationManagerStub(asks)
        await stub.ListWorkers(replication_pb2.ListWorkersRequest(), timeout=20)
        request = replication_pb2.WatchGroupsRequest(worker_id="a", incarnation="a/1")
        stream = replication_pb2_grpc.ReplicationManagerStub(watches).WatchGroups(request, timeout=60)
        await stream.read()
        source.material = of(new)
        with pytest.raises(grpc.aio.AioRpcError, match="not from an authority that counts now") as ended:
            await stream.read()
        assert ended.value.code() is grpc.StatusCode.PERMISSION_DENIED
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await stub.ListWorkers(replication_pb2.ListWorkersRequest(), timeout=20)
        assert refused.value.code() is grpc.StatusCode.PERMISSION_DENIED
    await server.stop(0)


def test_a_certificate_of_a_clock_that_was_ahead_is_made_again(tmp_path: Path) -> None:
    new_cluster_key(tmp_path / "key")
    now = NOW + dt.timedelta(days=30)
    source = KeySource(tmp_path / "key", Role.WORKER, "a", lambda: now)
    first = source.current()
    assert source.current() is first
    now = NOW
    second = source.current()
    assert second.leaf.not_valid_before_utc <= NOW < second.leaf.not_valid_after_utc
    now = NOW - dt.timedelta(minutes=1)
    assert source.current() is not second, "five minutes of skew are for the clocks of others"
    now = NOW + dt.timedelta(days=1)
    assert source.current() is not second


def keys(folder: Path, *secrets: str) -> Path:
    file = folder / "-".join(secret[:4] for secret in secrets)
    file.touch(0o600)
    file.write_text("\n".join(secrets) + "\n")
    return file


async def test_a_cluster_key_is_rotated_in_three_steps_without_a_break(tmp_path: Path) -> None:
    """Old; old and new; new and old; new. Processes of neighbouring steps talk with each other in both directions."""
    secrets = []
    for name in ("old", "new"):
        new_cluster_key(tmp_path / name)
        secrets.append(read_cluster_key(tmp_path / name).hex())
    old, new = secrets
    steps = [keys(tmp_path, *found) for found in ((old,), (old, new), (new, old), (new,))]
    for before, after in [*pairwise(steps), *pairwise(reversed(steps))]:
        server = Server(transport=daemon_transport(ManagerSettings(tmp_path, cluster_key=str(before))))
        server.add(
            replication_pb2_grpc.add_ReplicationManagerServicer_to_server, _groups(), "rhino.v1.ReplicationManager"
        )
        port = server.bind("127.0.0.1:0")
        await server.start()
        client = MutualTls(KeySource(after, Role.OPERATOR, "alice"))
        async with aio_channel(f"127.0.0.1:{port}", client, THE_MANAGER) as channel:
            stub = replication_pb2_grpc.ReplicationManagerStub(channel)
            await stub.ListWorkers(replication_pb2.ListWorkersRequest(), timeout=20)
        await server.stop(0)


def test_three_keys_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidSettingError, match="a second line of them while the key changes"):
        KeySource(keys(tmp_path, "00" * 32, "11" * 32, "22" * 32), Role.WORKER, "a")
