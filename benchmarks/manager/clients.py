"""A process of simulated sidecars and drivers. The benchmark's own process asks it for figures."""

from __future__ import annotations

import asyncio
import datetime as dt
import os
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection

import grpc
import grpc.aio
import uvloop

from benchmarks.manager.drivers import Driver
from benchmarks.manager.shape import OPERATORS, Shape, job_of, name_of
from benchmarks.manager.sidecars import Peers, Sidecar, Trips
from rhino_core.descriptors import raise_limit
from rhino_core.ids import Epoch, GroupId
from rhino_core.rpc.channel import SERVER_OPTIONS
from rhino_core.rpc.wakeups import start_grpc
from rhino_core.security.certificates import Authority, Material
from rhino_core.security.identity import Identity, Role
from rhino_core.security.transport import MutualTls, Transport
from rhino_pb import peer_pb2_grpc

VALID = dt.timedelta(days=1)
STARTS_AT_ONCE = 50  # sidecars; the next ones begin a moment later
START_PAUSE_S = 0.05


@dataclass(frozen=True, slots=True)
class Clients:
    """`numbers`: of the workers of this process. `drivers`: whether it has those of all queries, and the peer services.

    `secret`: of the cluster key. `batch_s`: from one batch of a query to the next.
    """

    shape: Shape
    numbers: Sequence[int]
    drivers: bool
    address: str
    secret: bytes
    epoch: Epoch
    batch_s: float


@dataclass(frozen=True, slots=True)
class Seen:
    """Observations of the clients of a process since the last reset."""

    live: int
    sessions: int
    batches: int
    heartbeats_s: Sequence[float]
    news: int
    news_bytes: int


class _Fixed:
    """A fixed certificate."""

    def __init__(self, material: Material) -> None:
        self._material = material

    def current(self) -> Material:
        return self._material


class _Identities:
    """Certificates by the cluster key, all from one authority."""

    def __init__(self, secret: bytes) -> None:
        self._authority = Authority.of_cluster_key(secret)

    def transport(self, role: Role, name: str) -> Transport:
        return MutualTls(_Fixed(self.material(role, name)))

    def material(self, role: Role, name: str) -> Material:
        return self._authority.issue(Identity(self._authority.cluster, role, name), VALID)


def serve(clients: Clients, pipe: Connection) -> None:
    """Runs the clients until the other end asks to stop.

    "reset" begins to count anew. "seen" is answered by `Seen`, and "state" by one without the times of heartbeats.

    They have a session of their own, as the manager has: Linux shares processors between sessions.
    """
    os.setsid()
    raise_limit()
    uvloop.run(_run(clients, pipe))


async def _run(clients: Clients, pipe: Connection) -> None:
    start_grpc()
    identities, trips, shape = _Identities(clients.secret), Trips(), clients.shape
    sidecars: dict[str, Sidecar] = {}
    for place, number in enumerate(clients.numbers):
        worker = shape.worker(number)
        transport = identities.transport(Role.WORKER, worker.worker_id)
        sidecars[worker.worker_id] = Sidecar(worker, clients.address, transport, trips, place / len(clients.numbers))
    _place(clients, sidecars)
    drivers: list[Driver] = []
    server: grpc.aio.Server | None = None  # ends when nobody refers to it
    if clients.drivers:
        transport = identities.transport(Role.DRIVER, "benchmark")
        drivers = [Driver(n, shape, sidecars, clients.address, transport) for n in range(shape.jobs)]
        server = await _serve_peers(clients, identities)
    asked: asyncio.Queue[str] = asyncio.Queue()
    asyncio.get_running_loop().add_reader(pipe.fileno(), lambda: asked.put_nowait(_asked(pipe)))
    tasks = []
    for count, sidecar in enumerate(sidecars.values(), start=1):
        tasks.append(asyncio.create_task(sidecar.run()))
        if count % STARTS_AT_ONCE == 0:
            await asyncio.sleep(START_PAUSE_S)
    tasks += [asyncio.create_task(driver.run(clients.batch_s)) for driver in drivers]
    try:
        while (what := await asked.get()) != "stop":
            if what == "reset":
                trips.heartbeats_s.clear()
                trips.news = trips.news_bytes = 0
                for driver in drivers:
                    driver.batches = 0
            else:
                _send(pipe, _seen(sidecars, drivers, trips, with_times=what == "seen"))
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if server is not None:
            await server.stop(None)


def _asked(pipe: Connection) -> str:
    """The requests of the other end. An ended process wants nothing more."""
    try:
        return str(pipe.recv())
    except EOFError:
        return "stop"


def _send(pipe: Connection, seen: Seen) -> None:
    """Sends all of it. The event loop reads the pipe, and does not let writes wait."""
    os.set_blocking(pipe.fileno(), True)
    try:
        pipe.send(seen)
    finally:
        os.set_blocking(pipe.fileno(), False)


def _seen(sidecars: dict[str, Sidecar], drivers: list[Driver], trips: Trips, *, with_times: bool) -> Seen:
    return Seen(
        live=sum(sidecar.live for sidecar in sidecars.values()),
        sessions=sum(driver.connected for driver in drivers),
        batches=sum(driver.batches for driver in drivers),
        heartbeats_s=tuple(trips.heartbeats_s) if with_times else (),
        news=trips.news,
        news_bytes=trips.news_bytes,
    )


def _place(clients: Clients, sidecars: dict[str, Sidecar]) -> None:
    """Gives the sidecars their groups."""
    shape = clients.shape
    for job in range(shape.jobs):
        for partition in range(shape.partitions):
            for place, number in enumerate(shape.chain(job, partition)):
                sidecar = sidecars.get(name_of(number))
                for operator in OPERATORS if sidecar is not None else ():
                    assert sidecar is not None
                    sidecar.hold(GroupId(job_of(job), operator, partition), clients.epoch, writes=place == 0)


async def _serve_peers(clients: Clients, identities: _Identities) -> grpc.aio.Server:
    """One server with the certificates of all workers: TLS says which of them a caller wants."""
    server = grpc.aio.server(options=SERVER_OPTIONS)
    peer_pb2_grpc.add_PeerServicer_to_server(Peers(clients.shape.worker(0)), server)  # type: ignore[abstract]  # the manager calls one method only
    materials = [identities.material(Role.WORKER, name_of(number)) for number in range(clients.shape.workers)]
    pairs = [(material.key, material.certificate) for material in materials]
    credentials = grpc.ssl_server_credentials(pairs, materials[0].authorities, require_client_auth=True)
    server.add_secure_port(f"0.0.0.0:{clients.shape.port}", credentials)
    await server.start()
    return server
