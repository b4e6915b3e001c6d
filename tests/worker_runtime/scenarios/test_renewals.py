"""All certificates of a cluster are renewed again and again while it works: no commit fails, no process restarts.

Every sidecar commits all the time. The driver has a session, and opens another one after each renewal. Then all
connections between sidecars are cut, so that new ones have to be made with the new certificates, also for pushes.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import socket
import ssl
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import grpc
import pytest
from cryptography import x509

from rhino.client import connection
from rhino.client.overview import fetch_overview
from rhino_core.ids import StoreId
from rhino_core.security.certificates import Authority
from rhino_core.security.choice import client_transport
from rhino_core.security.identity import Role
from rhino_core.security.sources import FolderSource
from tests.rhino_core.support.metrics import free_port
from tests.worker_runtime.cluster import Client, Cluster, Process, changelog_bytes, zip_bytes
from tests.worker_runtime.proxy import Proxy
from tests.worker_runtime.support.certificates import Folders, running_query
from tests.worker_runtime.support.encrypted_pushes import log_lines
from tests.worker_runtime.support.with_manager import manager, settings_of, version

SNAPSHOT_EVERY = 20  # versions
COMMIT_S = 120.0  # on a busy machine
LIFETIME = 4.0  # of a short certificate, in the time that one renewal with all its checks takes on this machine
LIFETIME_MIN = dt.timedelta(seconds=20)
SOCKETS_MORE = 12  # than after the first renewal, of a process: calls that are under way when it is looked at


class Size(NamedTuple):
    """`lifetimes`: how often the certificates of all processes expire while it runs."""

    sidecars: int
    renewals: int
    lifetimes: int


SMALL = Size(sidecars=3, renewals=2, lifetimes=0)
WHOLE = Size(sidecars=10, renewals=3, lifetimes=2)


class Renewed:
    """The manager, sidecars behind proxies, and how often each has committed."""

    def __init__(self, folders: Folders, root: Path, size: Size) -> None:
        self.folders = folders
        self.root = root
        self.size = size
        self.address = ""
        self.sidecars: list[Process] = []
        self.proxies: list[Proxy] = []
        self.commits: Counter[str] = Counter()  # with two copies, by worker
        self.late = 0  # other commits

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """The leases are long: a busy machine must not move a copy."""
        settings = replace(settings_of(self.root), lease_s=120.0, suspect_lease_s=120.0, return_lease_s=120.0)
        settings = replace(settings, tls_dir=self.folders.of(Role.MANAGER, "manager"))
        connection.use(client_transport(self.folders.of(Role.OPERATOR, "alice"), ""))
        try:
            async with Cluster(self.root) as cluster, manager(settings) as self.address, AsyncExitStack() as stack:
                cluster.address = self.address
                for number in range(self.size.sidecars):
                    proxy = await stack.enter_async_context(Proxy())
                    self.sidecars.append(self._behind(proxy, cluster, f"w{number}"))
                    self.proxies.append(proxy)
                    await self.sidecars[-1].start()
                yield
        finally:
            connection.use(None)

    def _behind(self, proxy: Proxy, cluster: Cluster, name: str) -> Process:
        listen = f"127.0.0.1:{free_port()}"
        proxy.forward(listen)
        certificates = self.folders.of(Role.WORKER, name)
        return cluster.make(
            name, listen=listen, advertise=proxy.address, push_port=proxy.push_port, tls_dir=certificates
        )

    async def commit(self, sidecar: Process, partition: int, end: asyncio.Event) -> None:
        """Versions of one store, until the end. None fails.

        On a busy machine, a commit may go on without a copy that is late. Those with two are counted.
        """
        store, name = StoreId("job", 0, partition, "default"), sidecar.settings.worker_id
        async with sidecar.attach(commit_timeout_s=COMMIT_S, patient=True) as client:
            await self._first(client, store)
            number = 1
            while not end.is_set():
                number += 1
                copies = await self._commit(client, store, number)
                self.commits[name] += copies == 2
                self.late += copies < 2
                await asyncio.sleep(0.02)

    async def _first(self, client: Client, store: StoreId) -> None:
        """The manager, beside so many processes that start, may take longer to place the group than a call lasts."""
        async with asyncio.timeout(2 * COMMIT_S):
            while True:
                try:
                    await self._commit(client, store, 1)
                    return
                except grpc.aio.AioRpcError as error:
                    if error.code() is not grpc.StatusCode.UNAVAILABLE:
                        raise

    async def _commit(self, client: Client, store: StoreId, number: int) -> int:
        first = number - number % SNAPSHOT_EVERY
        if number == first:
            reply = await client.commit(store, version(number), zip_bytes(), [], end="zip")
        else:
            lineage = [version(one) for one in range(max(1, first), number)]
            reply = await client.commit(store, version(number), changelog_bytes(number), lineage)
        return reply.copies

    async def go_on(self) -> None:
        """Waits until every sidecar has committed twice more to two workers: the second began afterwards."""
        before = Counter(self.commits)
        async with asyncio.timeout(2 * COMMIT_S):
            while any(self.commits[s.settings.worker_id] < before[s.settings.worker_id] + 2 for s in self.sidecars):  # noqa: ASYNC110
                await asyncio.sleep(0.02)

    async def renew(self, authority: Authority) -> None:
        """New certificates for everybody, and new connections with them."""
        self.folders.renew(authority)
        await self.go_on()
        for proxy in self.proxies:
            proxy.cut_all()
        await self.go_on()
        addresses = [(self.address, "manager")]
        addresses += [(f"{s.settings.listen}", s.settings.worker_id) for s in self.sidecars]
        for address, name in addresses:
            written = FolderSource(self.root / "tls" / name).current().leaf.serial_number
            assert await asyncio.to_thread(self.served_serial, address) == written
        overview = await asyncio.to_thread(fetch_overview, self.address)
        assert {worker.state for worker in overview.workers} == {"live"}

    def served_serial(self, address: str) -> int:
        """The number of the certificate with which a server answers."""
        folder = self.root / "tls/alice"
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False  # certificates name processes, not hosts
        context.load_verify_locations(folder / "ca.crt")
        context.load_cert_chain(folder / "tls.crt", folder / "tls.key")
        context.set_alpn_protocols(["h2"])
        host, _, port = address.rpartition(":")
        with socket.create_connection((host, int(port)), 30) as plain, context.wrap_socket(plain) as secure:
            assert secure.version() == "TLSv1.3"
            served = secure.getpeercert(binary_form=True)
        assert served is not None
        return x509.load_der_x509_certificate(served).serial_number

    def sockets(self) -> dict[str, int]:
        """Open ones of each sidecar."""
        return {s.settings.worker_id: sum(map(_is_socket, _descriptors(s))) for s in self.sidecars}


def _descriptors(sidecar: Process) -> list[Path]:
    assert sidecar.process is not None
    return list(Path(f"/proc/{sidecar.process.pid}/fd").iterdir())


def _is_socket(descriptor: Path) -> bool:
    try:
        return str(descriptor.readlink()).startswith("socket:")
    except FileNotFoundError:  # closed meanwhile
        return False


async def all_renewed(cluster: Renewed) -> None:
    """With a session of the driver each: renewals by the same authority, then a new authority in three steps."""
    done, begun = 1, time.monotonic()
    await renewed_beside_a_driver(cluster)
    sockets = cluster.sockets()
    if cluster.size.lifetimes:
        cluster.folders.valid = lifetime = max(
            LIFETIME_MIN, dt.timedelta(seconds=LIFETIME * (time.monotonic() - begun))
        )
        begun = time.monotonic()
        while time.monotonic() < begun + cluster.size.lifetimes * lifetime.total_seconds():
            await renewed_beside_a_driver(cluster)
            done += 1
    while done < cluster.size.renewals:
        await renewed_beside_a_driver(cluster)
        done += 1
    former, new = cluster.folders.authority, Authority.create("c")
    for folder in (cluster.root / "tls").iterdir():
        (folder / "ca.crt").write_bytes(former.certificate_pem + new.certificate_pem)
    await cluster.go_on()
    await renewed_beside_a_driver(cluster, new)
    for name, count in cluster.sockets().items():
        assert count <= sockets[name] + SOCKETS_MORE, "connections with former certificates stay open"
    commits = f"{sum(cluster.commits.values())} commits, {cluster.late} late"
    print(f"{done + 1} renewals, certificates of {cluster.folders.valid}, {commits}")


async def renewed_beside_a_driver(cluster: Renewed, authority: Authority | None = None) -> None:
    async with running_query(cluster.address, cluster.folders):
        await cluster.renew(authority or cluster.folders.authority)


@pytest.mark.parametrize(
    "size",
    [
        pytest.param(SMALL, id="three sidecars"),
        pytest.param(WHOLE, id="ten sidecars", marks=[pytest.mark.nightly, pytest.mark.timeout(2400)]),
    ],
)
async def test_all_certificates_are_renewed_under_load(size: Size, tmp_path: Path) -> None:
    cluster = Renewed(Folders(tmp_path / "tls"), tmp_path, size)
    async with cluster.running():
        processes = [sidecar.process for sidecar in cluster.sidecars]
        end = asyncio.Event()
        async with asyncio.TaskGroup() as tasks:
            for partition, sidecar in enumerate(cluster.sidecars):
                tasks.create_task(cluster.commit(sidecar, partition, end))
            await cluster.go_on()
            await all_renewed(cluster)
            end.set()
        for sidecar, process in zip(cluster.sidecars, processes, strict=True):
            assert sidecar.process is process
            assert process is not None
            assert process.returncode is None
            lines = log_lines(sidecar)
            taken = [line for line in lines if line["message"] == "new certificate"]
            assert len(taken) > size.renewals
            assert not [line for line in lines if "Tampered" in str(line) or line["level"] == "error"]
