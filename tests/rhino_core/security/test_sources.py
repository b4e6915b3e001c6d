"""Certificates from a folder and from a cluster key: renewal, and what is refused."""

from __future__ import annotations

import base64
import datetime as dt
import os
import stat
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from rhino_core.errors import AlreadyThereError, InvalidRequestError, InvalidSettingError
from rhino_core.security import sources
from rhino_core.security.certificates import Authority, Material
from rhino_core.security.folders import write_folder
from rhino_core.security.identity import Identity, Role
from rhino_core.security.sources import FolderSource, KeySource, new_cluster_key, read_cluster_key

HOUR = dt.timedelta(hours=1)
WORKER = Identity("c", Role.WORKER, "a")


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority.create("c")


def test_a_certificate_says_who_it_is_for(authority: Authority) -> None:
    material = authority.issue(WORKER, HOUR, ["node-1", "10.0.0.7", "[::1]"])
    assert material.check().identity == WORKER
    assert material.is_issued()
    other = Material(Authority.create("c").certificate_pem, material.certificate, material.key)
    assert not other.is_issued()


def test_a_process_may_have_the_name_of_its_cluster(authority: Authority) -> None:
    leaf = authority.issue(Identity("c", Role.WORKER, "c"), HOUR).leaf
    assert leaf.subject != leaf.issuer, "TLS would take it for a certificate that signed itself"


def test_an_authority_issues_for_its_cluster_only(authority: Authority) -> None:
    with pytest.raises(InvalidRequestError, match="not of the cluster c"):
        authority.issue(Identity("d", Role.WORKER, "a"), HOUR)


def test_new_files_count_and_half_of_a_renewal_does_not(authority: Authority, tmp_path: Path) -> None:
    folder, first, second = tmp_path / "tls", authority.issue(WORKER, HOUR), authority.issue(WORKER, 2 * HOUR)
    write_folder(folder, first)
    source = FolderSource(folder)
    used = source.current()
    assert used == first
    assert source.current() is used
    (folder / "tls.crt").write_bytes(second.certificate)
    assert source.current() is used, "the key is still the former one"
    (folder / "tls.key").write_bytes(second.key)
    assert source.current() == second
    (folder / "ca.crt").unlink()
    assert source.current() == second
    write_folder(folder, first)
    assert source.current() == first


def test_a_folder_that_cannot_be_read_is_told_once(
    authority: Authority, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_folder(tmp_path, authority.issue(WORKER, HOUR))
    source = FolderSource(tmp_path)
    for _ in range(2):
        (tmp_path / "tls.crt").write_bytes(b"no PEM")
        for _ in range(3):
            source.current()
        assert [record.levelname for record in caplog.records] == ["WARNING"]
        write_folder(tmp_path, authority.issue(WORKER, HOUR))
        caplog.clear()
        source.current()
        caplog.clear()


def test_files_are_closed_to_others(authority: Authority, tmp_path: Path) -> None:
    write_folder(tmp_path / "tls", authority.issue(WORKER, HOUR))
    modes = {stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "tls").iterdir()}
    assert modes == {0o600}
    (tmp_path / "tls/tls.key").chmod(0o644)
    with pytest.raises(InvalidSettingError, match=r"tls.key is open to other users: chmod go-w,o="):
        FolderSource(tmp_path / "tls")


@pytest.mark.parametrize("name", ["ca.crt", "tls.crt", "tls.key"])
@pytest.mark.parametrize("mode", [0o620, 0o602])
def test_who_may_write_a_file_of_certificates_is_this_user_alone(
    authority: Authority, tmp_path: Path, name: str, mode: int
) -> None:
    write_folder(tmp_path, authority.issue(WORKER, HOUR))
    (tmp_path / name).chmod(0o640)
    FolderSource(tmp_path)
    kept = tmp_path / f"..{name}"
    (tmp_path / name).rename(kept)
    (tmp_path / name).symlink_to(kept)  # as in Kubernetes
    FolderSource(tmp_path)
    kept.chmod(mode)
    with pytest.raises(InvalidSettingError, match=f"{name} is open to other users"):
        FolderSource(tmp_path)
    kept.chmod(0o600)
    os.chown(kept, 12345, -1)
    with pytest.raises(InvalidSettingError, match=f"{name} belongs to user 12345"):
        FolderSource(tmp_path)


def test_who_may_replace_files_of_certificates_is_this_user_alone(authority: Authority, tmp_path: Path) -> None:
    folder = tmp_path / "tls"
    write_folder(folder, authority.issue(WORKER, HOUR))
    folder.chmod(0o777)
    with pytest.raises(InvalidSettingError, match="tls can be written by other users: chmod go-w"):
        FolderSource(folder)
    folder.chmod(0o1777)  # a mount of Kubernetes
    FolderSource(folder)
    os.chown(folder, 12345, -1)
    with pytest.raises(InvalidSettingError, match="tls belongs to user 12345"):
        FolderSource(folder)


def test_a_cluster_key_of_another_user_is_refused(tmp_path: Path) -> None:
    key = tmp_path / "cluster.key"
    new_cluster_key(key)
    os.chown(key, 12345, -1)
    with pytest.raises(InvalidSettingError, match=r"cluster key .* belongs to user 12345"):
        read_cluster_key(key)


@pytest.mark.parametrize("missing", ["ca.crt", "tls.crt", "tls.key"])
def test_a_missing_file_is_named(authority: Authority, tmp_path: Path, missing: str) -> None:
    write_folder(tmp_path, authority.issue(WORKER, HOUR))
    (tmp_path / missing).unlink()
    with pytest.raises(InvalidSettingError, match=f"{missing}: No such file.*rhino cert"):
        FolderSource(tmp_path)


@pytest.mark.parametrize("damaged", ["ca.crt", "tls.crt", "tls.key"])
def test_what_is_no_pem_is_refused(authority: Authority, tmp_path: Path, damaged: str) -> None:
    write_folder(tmp_path, authority.issue(WORKER, HOUR))
    (tmp_path / damaged).write_bytes(b"\x00 not PEM")
    with pytest.raises(InvalidSettingError, match="in PEM"):
        FolderSource(tmp_path)


@pytest.mark.parametrize("damaged", ["key", "name", "issuer"])
def test_a_certificate_that_is_damaged_inside_changes_nothing(
    authority: Authority, tmp_path: Path, damaged: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Its PEM is whole. The library reads such parts only when they are asked for."""
    material = authority.issue(WORKER, HOUR)
    write_folder(tmp_path, material)
    source = FolderSource(tmp_path)
    der = material.leaf.public_bytes(serialization.Encoding.DER)
    point = material.leaf.public_key().public_bytes(
        serialization.Encoding.X962, serialization.PublicFormat.UncompressedPoint
    )
    former, new = {
        "key": (point, b"\x05" + point[1:]),
        "name": (WORKER.uri.encode(), b"\xff" + WORKER.uri.encode()[1:]),
        "issuer": (b"\x0c\x01c", b"\x0c\x01\xff"),
    }[damaged]
    assert der.count(former) >= 1
    pem = base64.encodebytes(der.replace(former, new, 1))
    (tmp_path / "tls.crt").write_bytes(b"-----BEGIN CERTIFICATE-----\n" + pem + b"-----END CERTIFICATE-----\n")
    assert source.current() == material
    assert [record.message for record in caplog.records] == ["certificates cannot be read; the former ones stay"]
    with pytest.raises(InvalidSettingError, match="cannot be read"):
        FolderSource(tmp_path)


def test_an_authority_without_a_name_is_refused() -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    now = dt.datetime.now(dt.UTC)
    nameless = x509.CertificateBuilder(x509.Name([]), x509.Name([]), key.public_key(), 1, now, now + HOUR)
    found = nameless.sign(key, hashes.SHA256())
    with pytest.raises(InvalidSettingError, match="no common name"):
        Authority.load(found.public_bytes(serialization.Encoding.PEM), Authority(found, key).key_pem)


def test_holders_of_a_key_trust_each_other_and_nobody_else(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    new_cluster_key(one)
    new_cluster_key(other)
    worker, manager = KeySource(one, Role.WORKER, "a").current(), KeySource(one, Role.MANAGER, "m").current()
    stranger = KeySource(other, Role.MANAGER, "m").current()
    assert worker.identity.cluster == manager.identity.cluster != stranger.identity.cluster
    assert Material(worker.authorities, manager.certificate, manager.key).is_issued()
    assert not Material(worker.authorities, stranger.certificate, stranger.key).is_issued()


def test_a_certificate_from_the_key_is_renewed_before_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    new_cluster_key(tmp_path / "key")
    source = KeySource(tmp_path / "key", Role.WORKER, "a")
    used = source.current()
    assert source.current() is used
    monkeypatch.setattr(sources, "DERIVED_RENEWED", sources.DERIVED_VALID + HOUR)
    renewed = source.current()
    assert renewed is not used
    assert renewed.identity == used.identity


@pytest.mark.skipif(os.geteuid() != 0, reason="only root owns files of root")
def test_a_key_file_of_root_may_be_readable_for_the_group_of_a_daemon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Kubernetes mounts a secret for a container of another user."""
    key = tmp_path / "cluster.key"
    new_cluster_key(key)
    key.chmod(0o440)
    monkeypatch.setattr(os, "geteuid", lambda: 185)
    assert len(read_cluster_key(key)) == 32
    for mode in (0o460, 0o444):
        key.chmod(mode)
        with pytest.raises(InvalidSettingError, match="open to other users"):
            read_cluster_key(key)


def test_a_key_file_is_checked(tmp_path: Path) -> None:
    key = tmp_path / "sub/cluster.key"
    new_cluster_key(key)
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    assert len(read_cluster_key(key)) == 32
    with pytest.raises(AlreadyThereError, match="exists already"):
        new_cluster_key(key)
    assert list(key.parent.iterdir()) == [key]
    key.chmod(0o640)
    with pytest.raises(InvalidSettingError, match="chmod 600"):
        read_cluster_key(key)
    for text in (b"", b"ab", b"x" * 64, b"\xff" * 64, b"0" * 62):
        os.truncate(key, 0)
        key.write_bytes(text)
        key.chmod(0o600)
        with pytest.raises(InvalidSettingError, match="cluster key"):
            read_cluster_key(key)
    with pytest.raises(InvalidSettingError, match="rhino cert key"):
        read_cluster_key(tmp_path / "absent")
