"""`rhino cert`: an authority, keys and certificates, as a user makes, looks at and renews them."""

from __future__ import annotations

import datetime as dt
import json
import stat
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rhino.cli import main
from rhino_core.errors import AlreadyThereError, InvalidRequestError, InvalidSettingError, RhinoError
from rhino_core.security.certificates import Authority
from rhino_core.security.folders import write_folder
from rhino_core.security.identity import Identity, Role
from rhino_core.security.sources import FolderSource


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("RHINO_CLUSTER_KEY", raising=False)
    return tmp_path


def rhino(*arguments: str) -> str:
    """What the command prints. Raises its error."""
    result = CliRunner().invoke(main.app, arguments)
    if isinstance(result.exception, RhinoError):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.output


@pytest.mark.parametrize("role", [role.value for role in Role])
def test_a_certificate_of_each_role(here: Path, role: str) -> None:
    assert "cluster production" in rhino("cert", "init", "--cluster", "production")
    assert f"rhino://production/{role}/name-1 until " in rhino("cert", role, "name-1", "--days", "30")
    assert stat.S_IMODE((here / "name-1/tls.key").stat().st_mode) == 0o600
    material = FolderSource(here / "name-1").current()
    assert material.is_issued()
    assert material.leaf.not_valid_after_utc - dt.datetime.now(dt.UTC) < dt.timedelta(days=30)
    assert "valid until" in rhino("cert", "verify", "name-1")
    facts = json.loads(rhino("cert", "show", "name-1", "--json"))
    assert (facts["identity"], facts["valid now"]) == (f"rhino://production/{role}/name-1", "yes")


def test_a_second_certificate_replaces_the_first_one(here: Path) -> None:
    rhino("cert", "init")
    source = None
    for _ in range(2):
        rhino("cert", "worker", "w-1", "--output", "tls", "--host", "node-1", "--host", "10.0.0.7")
        source = source or FolderSource(here / "tls")
        first = source.current()
    rhino("cert", "worker", "w-1", "--output", "tls")
    assert source is not None
    assert source.current().leaf.serial_number != first.leaf.serial_number


def test_an_authority_is_never_overwritten(here: Path) -> None:
    rhino("cert", "init")
    before = (here / "ca/ca.key").read_bytes()
    assert stat.S_IMODE((here / "ca/ca.key").stat().st_mode) == 0o600
    with pytest.raises(AlreadyThereError, match="remove the folder"):
        rhino("cert", "init")
    assert (here / "ca/ca.key").read_bytes() == before


def test_a_cluster_key_and_what_is_issued_by_it(here: Path) -> None:
    assert "copy it to every node" in rhino("cert", "key", "cluster.key")
    with pytest.raises(AlreadyThereError, match="it exists already"):
        rhino("cert", "key", "cluster.key")
    rhino("cert", "driver", "etl", "--cluster-key", "cluster.key")
    assert FolderSource(here / "etl").current().identity.role is Role.DRIVER


def test_bad_names_and_places_are_named(here: Path) -> None:
    with pytest.raises(InvalidRequestError, match="must be lower-case"):
        rhino("cert", "init", "--cluster", "Prod.1")
    assert not (here / "ca").exists()
    with pytest.raises(InvalidSettingError, match=r"ca\.crt: No such file.*rhino cert init ca"):
        rhino("cert", "worker", "w-1")
    rhino("cert", "init")
    with pytest.raises(InvalidRequestError, match="of a worker: must be"):
        rhino("cert", "worker", "../w")
    (here / "ca/ca.key").write_text("no key")
    with pytest.raises(InvalidSettingError, match="not an authority in PEM"):
        rhino("cert", "worker", "w-1")


def test_what_nobody_would_accept_is_told(here: Path) -> None:
    ours, others = Authority.create("c"), Authority.create("c")
    identity, hour = Identity("c", Role.WORKER, "a"), dt.timedelta(hours=1)
    write_folder(here / "expired", ours.issue(identity, -dt.timedelta(minutes=1)))
    with pytest.raises(InvalidRequestError, match="expired at"):
        rhino("cert", "verify", "expired")
    write_folder(here / "strange", others.issue(identity, hour))
    (here / "strange/ca.crt").write_bytes(ours.certificate_pem)
    with pytest.raises(InvalidRequestError, match=r"none of the authorities in ca\.crt has issued it"):
        rhino("cert", "verify", "strange")
    assert "none of the authorities" in rhino("cert", "show", "strange")
