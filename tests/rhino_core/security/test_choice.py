"""Which transport a process gets by its settings, and which settings are refused."""

from __future__ import annotations

import datetime as dt
import logging
from dataclasses import replace
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization

from rhino_core.errors import InvalidSettingError
from rhino_core.security.certificates import Authority
from rhino_core.security.choice import client_transport, daemon_transport
from rhino_core.security.folders import write_folder
from rhino_core.security.identity import Identity, Role
from rhino_core.security.sources import new_cluster_key
from rhino_core.security.transport import PLAIN, MutualTls
from rhino_core.settings import ManagerSettings, SidecarSettings

HOUR = dt.timedelta(hours=1)


def manager(listen: str = "127.0.0.1:0", **more: object) -> ManagerSettings:
    return ManagerSettings(Path("/unused"), listen, **more)  # type: ignore[arg-type]


def sidecar(listen: str = "127.0.0.1:0", **more: object) -> SidecarSettings:
    return SidecarSettings(Path("/unused"), "h", "w-1", listen, **more)  # type: ignore[arg-type]


@pytest.fixture
def tls(tmp_path: Path) -> dict[Role, str]:
    """A folder for each role. Its name is that of the role, and "w-1" for the worker."""
    authority, folders = Authority.create("c"), {}
    for role in Role:
        name = "w-1" if role is Role.WORKER else role.value
        write_folder(tmp_path / role.value, authority.issue(Identity("c", role, name), HOUR))
        folders[role] = str(tmp_path / role.value)
    return folders


@pytest.mark.parametrize("host", ["127.0.0.1", "127.3.2.1", "[::1]", "localhost"])
def test_an_address_of_this_machine_needs_no_certificate(host: str) -> None:
    assert daemon_transport(manager(f"{host}:0")) is PLAIN


@pytest.mark.parametrize("host", ["0.0.0.0", "[::]", "10.0.0.7", "worker-1", "example.org", "[fe80::1]"])
def test_an_address_that_others_reach_needs_a_choice(host: str, caplog: pytest.LogCaptureFixture) -> None:
    for settings in (manager(f"{host}:7461"), sidecar(f"{host}:7461")):
        with pytest.raises(InvalidSettingError, match="can be reached from other machines: give --tls-dir"):
            daemon_transport(settings)
    assert daemon_transport(sidecar(f"{host}:7461", insecure=True)) is PLAIN
    assert [record.levelno for record in caplog.records] == [logging.WARNING]


def test_a_daemon_has_a_certificate_of_its_own(tls: dict[Role, str]) -> None:
    own = daemon_transport(sidecar("worker-1:1", tls_dir=tls[Role.WORKER]))
    assert isinstance(own, MutualTls)
    assert own.identity == Identity("c", Role.WORKER, "w-1")
    assert isinstance(daemon_transport(manager("m:1", tls_dir=tls[Role.MANAGER])), MutualTls)
    for role in set(Role) - {Role.WORKER}:
        with pytest.raises(InvalidSettingError, match=f"that of rhino://c/{role.value}/.*this process is worker 'w-1'"):
            daemon_transport(sidecar(tls_dir=tls[role]))
    with pytest.raises(InvalidSettingError, match="this process is a manager"):
        daemon_transport(manager(tls_dir=tls[Role.WORKER]))


def test_another_workers_certificate_is_refused(tls: dict[Role, str]) -> None:
    settings = SidecarSettings(Path("/unused"), "h", "w-2", "127.0.0.1:0", tls_dir=tls[Role.WORKER])
    with pytest.raises(InvalidSettingError, match="this process is worker 'w-2'"):
        daemon_transport(settings)


def test_a_daemon_does_not_start_with_a_certificate_that_nobody_would_accept(tmp_path: Path) -> None:
    authority = Authority.create("c")
    identity = Identity("c", Role.MANAGER, "m")
    now = dt.datetime.now(dt.UTC)
    write_folder(tmp_path / "ended", authority.issue(identity, HOUR, now=now - 2 * HOUR))
    with pytest.raises(InvalidSettingError, match="the certificate has ended at"):
        daemon_transport(manager(tls_dir=str(tmp_path / "ended")))
    made = authority.issue(identity, HOUR)
    nameless = x509.CertificateBuilder().subject_name(made.leaf.subject).issuer_name(made.leaf.issuer)
    nameless = nameless.public_key(made.leaf.public_key()).serial_number(1).not_valid_before(now - HOUR)
    nameless = nameless.not_valid_after(now + HOUR).add_extension(
        x509.SubjectAlternativeName([x509.UniformResourceIdentifier(identity.uri)]), critical=False
    )
    pem = nameless.sign(authority.key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    write_folder(tmp_path / "nameless", replace(made, certificate=pem))
    with pytest.raises(InvalidSettingError, match=r"does not have the DNS name manager\.c\.rhino"):
        daemon_transport(manager(tls_dir=str(tmp_path / "nameless")))


def test_contradictions_are_refused(tls: dict[Role, str], tmp_path: Path) -> None:
    key = tmp_path / "cluster.key"
    new_cluster_key(key)
    with pytest.raises(InvalidSettingError, match="not together with --cluster-key"):
        sidecar(tls_dir=tls[Role.WORKER], cluster_key=str(key))
    for more in ({"tls_dir": tls[Role.WORKER]}, {"cluster_key": str(key)}):
        with pytest.raises(InvalidSettingError, match="false with --tls-dir"):
            sidecar(insecure=True, **more)
    with pytest.raises(InvalidSettingError, match="not both"):
        client_transport(tls[Role.OPERATOR], str(key))


def test_whoever_has_the_key_is_an_operator(tmp_path: Path) -> None:
    key = tmp_path / "cluster.key"
    new_cluster_key(key)
    person, worker = client_transport("", str(key)), daemon_transport(sidecar(cluster_key=str(key)))
    assert isinstance(person, MutualTls)
    assert isinstance(worker, MutualTls)
    assert person.identity.role is Role.OPERATOR
    assert person.identity.cluster == worker.identity.cluster
    assert client_transport("", "") is PLAIN
