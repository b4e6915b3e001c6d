"""`--metrics-tls`: a real server with certificates. Probes need none, and readers of metrics may have to have one."""

from __future__ import annotations

import asyncio
import datetime as dt
import http.client
import json
import socket
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from rhino.daemons.loading import load
from rhino_core.errors import InvalidSettingError
from rhino_core.health import Health
from rhino_core.metrics import CollectorRegistry, exporting
from rhino_core.security.audit import AuditLog
from rhino_core.security.certificates import Authority
from rhino_core.security.folders import write_folder
from rhino_core.security.https import DaemonHttps
from rhino_core.security.identity import Identity, Role
from rhino_core.security.sources import FolderSource, new_cluster_key, read_cluster_key
from rhino_core.settings import ManagerSettings
from tests.rhino_core.support.metrics import Daemon

VALID = dt.timedelta(hours=1)


class Cluster(NamedTuple):
    root: Path
    authority: Authority

    def folder(self, name: str, role: Role, authority: Authority | None = None) -> Path:
        issuer = authority or self.authority
        write_folder(self.root / name, issuer.issue(Identity(issuer.cluster, role, name), VALID))
        return self.root / name

    def https(self, *, mutual: bool) -> DaemonHttps:
        source = FolderSource(self.folder("manager", Role.MANAGER))
        return DaemonHttps(source, AuditLog(str(self.root / "audit")), mutual=mutual)

    def audited(self) -> list[tuple[str, str]]:
        lines = [json.loads(line) for line in (self.root / "audit").read_text().splitlines()]
        return [(line["principal"], line["outcome"]) for line in lines]


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    return Cluster(tmp_path, Authority.create("c"))


class Answer(NamedTuple):
    status: int
    body: str
    serial: str


def ask(port: int, path: str, authorities: Path, certificate: Path | None = None) -> Answer:
    """What a client gets that trusts the authorities in this folder. `certificate`: its own folder."""
    context = ssl.create_default_context(cafile=str(authorities / "ca.crt"))
    context.check_hostname = False
    if certificate is not None:
        context.load_cert_chain(certificate / "tls.crt", certificate / "tls.key")
    connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=30, context=context)
    try:
        connection.connect()
        assert isinstance(connection.sock, ssl.SSLSocket)
        served = connection.sock.getpeercert()
        assert connection.sock.version() == "TLSv1.3"
        assert served is not None
        connection.request("GET", path)
        reply = connection.getresponse()
        return Answer(reply.status, reply.read().decode(), str(served["serialNumber"]))
    finally:
        connection.close()


async def test_with_server_everybody_may_read_over_https(cluster: Cluster) -> None:
    async with exporting(CollectorRegistry(), "127.0.0.1", 0, Health(), cluster.https(mutual=False)) as port:
        answer = await asyncio.to_thread(ask, port, "/metrics", cluster.root / "manager")
        assert (answer.status, "rhino_build_info" in answer.body) == (200, True)
        assert (await asyncio.to_thread(ask, port, "/healthz", cluster.root / "manager")).status == 200
        plain = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        with pytest.raises((http.client.HTTPException, ConnectionError)):
            await asyncio.to_thread(_get, plain)


def _get(connection: http.client.HTTPConnection) -> None:
    try:
        connection.request("GET", "/metrics")
        connection.getresponse()
    finally:
        connection.close()


async def test_with_mutual_only_those_who_look_may_read_and_probes_need_no_certificate(cluster: Cluster) -> None:
    here = cluster.root / "manager"
    async with exporting(CollectorRegistry(), "127.0.0.1", 0, Health(), cluster.https(mutual=True)) as port:

        async def status(path: str, certificate: Path | None = None) -> int:
            return (await asyncio.to_thread(ask, port, path, here, certificate)).status

        assert await status("/healthz") == 200
        assert await status("/readyz") == 503  # it is starting
        assert await status("/metrics", cluster.folder("grafana", Role.READER)) == 200
        assert await status("/metrics", cluster.folder("alice", Role.OPERATOR)) == 200
        assert await status("/metrics") == 403
        assert await status("/metrics", cluster.folder("etl", Role.DRIVER)) == 403
        assert cluster.audited() == [("", "AccessDeniedError"), ("rhino://c/driver/etl", "AccessDeniedError")]


async def test_a_certificate_of_another_authority_is_refused(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    strange = cluster.folder("eve", Role.OPERATOR, Authority.create("c"))
    async with exporting(CollectorRegistry(), "127.0.0.1", 0, Health(), cluster.https(mutual=True)) as port:
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await asyncio.to_thread(ask, port, "/healthz", cluster.root / "manager", strange)
        await until(lambda: "a connection was closed without an answer" in caplog.text)


async def test_new_certificates_and_authorities_count_for_the_next_connection(cluster: Cluster) -> None:
    here = cluster.root / "manager"
    reader = cluster.folder("grafana", Role.READER)
    async with exporting(CollectorRegistry(), "127.0.0.1", 0, Health(), cluster.https(mutual=True)) as port:
        first = await asyncio.to_thread(ask, port, "/metrics", here, reader)
        new = Authority.create("c")
        cluster.folder("manager", Role.MANAGER, new)
        second = await asyncio.to_thread(ask, port, "/metrics", here, cluster.folder("new", Role.READER, new))
        assert (first.status, second.status) == (200, 200)
        assert first.serial != second.serial
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await asyncio.to_thread(ask, port, "/metrics", here, reader)


async def test_silent_connections_keep_nobody_from_a_handshake(cluster: Cluster) -> None:
    async with exporting(CollectorRegistry(), "127.0.0.1", 0, Health(), cluster.https(mutual=True)) as port:
        silent = [socket.create_connection(("127.0.0.1", port)) for _ in range(100)]
        assert (await asyncio.to_thread(ask, port, "/healthz", cluster.root / "manager")).status == 200
        for connection in silent:
            connection.close()


@pytest.mark.timeout(200)
def test_real_daemons_with_a_cluster_key(tmp_path: Path) -> None:
    key = tmp_path / "cluster.key"
    new_cluster_key(key)
    authority = Authority.of_cluster_key(read_cluster_key(key))
    reader = Cluster(tmp_path, authority).folder("grafana", Role.READER)
    secured = ("--cluster-key", str(key), "--listen", "127.0.0.1:0", "--metrics-tls")
    manager = Daemon("manager", "--data-dir", str(tmp_path / "m"), "--bootstrap", *secured, "mutual")
    try:
        folders = ("--data-dir", str(tmp_path / "s"), "--socket", str(tmp_path / "socket"), "--host", "127.0.0.1")
        sidecar = Daemon("sidecar", *folders, "--manager", manager.ready["address"], *secured, "server")
        try:
            assert ask(sidecar.port, "/readyz", reader).status == 200
            assert "rhino_stored_bytes" in ask(sidecar.port, "/metrics", reader).body
        finally:
            sidecar.stop()
        assert ask(manager.port, "/metrics", reader).status == 403
        assert "rhino_workers" in ask(manager.port, "/metrics", reader, reader).body
        assert ask(manager.port, "/healthz", reader).status == 200
    finally:
        manager.stop()


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not holds():  # noqa: ASYNC110  a log has no notification
            await asyncio.sleep(0.02)


async def until_answers(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while True:
            try:
                assert await asyncio.to_thread(holds)
            except OSError:
                await asyncio.sleep(0.02)
            else:
                return


@pytest.mark.parametrize("mode", ["server", "mutual", "on"])
def test_without_certificates_only_off_is_allowed(mode: str) -> None:
    flags = {"data_dir": "m", "metrics_tls": mode}
    with pytest.raises(InvalidSettingError, match="without --tls-dir and --cluster-key only off"):
        load(ManagerSettings, flags, {})
    assert load(ManagerSettings, {"data_dir": "m"}, {}).settings.metrics_tls == "off"
    if mode != "on":
        assert load(ManagerSettings, flags | {"tls_dir": "t"}, {}).settings.metrics_tls == mode
