"""Real servers with certificates, whose methods are not implemented: only who gets through to them matters."""

from __future__ import annotations

import datetime as dt
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from rhino_core.rpc.server import Server
from rhino_core.security.audit import AuditLog
from rhino_core.security.certificates import Authority, Material
from rhino_core.security.identity import Identity, Role
from rhino_core.security.transport import Expected, MutualTls, Transport
from rhino_pb import handover_pb2_grpc, peer_pb2_grpc, replication_pb2, replication_pb2_grpc, witness_pb2_grpc

HOUR = dt.timedelta(hours=1)
CLUSTER = "c"
THE_WORKER = Expected(Role.WORKER, "a")


class Fixed:
    """A source whose certificate a test chooses."""

    def __init__(self, material: Material) -> None:
        self.material = material

    def current(self) -> Material:
        return self.material


def tls(authority: Authority, role: Role, name: str = "a", valid: dt.timedelta = HOUR) -> MutualTls:
    return MutualTls(Fixed(authority.issue(Identity(authority.cluster, role, name), valid)))


def _unimplemented(base: Any) -> Any:
    """A servicer whose other methods fail."""
    return base()


class _Reading(replication_pb2_grpc.ReplicationManagerServicer):
    """Its stream is read, for each message in it names a worker."""

    async def Heartbeat(self, requests: Any, context: Any) -> AsyncIterator[replication_pb2.HeartbeatReply]:
        async for _ in requests:
            yield replication_pb2.HeartbeatReply()

    async def RegisterInParts(self, requests: Any, context: Any) -> replication_pb2.RegisterReply:
        async for _ in requests:
            pass
        return replication_pb2.RegisterReply()


@asynccontextmanager
async def serving(
    manager: Transport,
    worker: Transport,
    audit: AuditLog | None = None,
    handover: type[Any] = handover_pb2_grpc.HandoverManagerServicer,
) -> AsyncIterator[tuple[str, str]]:
    """Yields the addresses of a manager's and of a sidecar's server. `handover`: the manager's handover service."""
    servers = [Server(transport=transport, audit=audit, reflect=True) for transport in (manager, worker)]
    servers[0].add(
        replication_pb2_grpc.add_ReplicationManagerServicer_to_server,
        _unimplemented(_Reading),
        "rhino.v1.ReplicationManager",
    )
    servers[0].add(
        handover_pb2_grpc.add_HandoverManagerServicer_to_server,
        _unimplemented(handover),
        "rhino.v1.HandoverManager",
    )
    servers[1].add(
        peer_pb2_grpc.add_PeerServicer_to_server, _unimplemented(peer_pb2_grpc.PeerServicer), "rhino.v1.Peer"
    )
    servers[1].add(
        witness_pb2_grpc.add_WitnessServicer_to_server,
        _unimplemented(witness_pb2_grpc.WitnessServicer),
        "rhino.v1.Witness",
    )
    addresses = [f"127.0.0.1:{server.bind('127.0.0.1:0')}" for server in servers]
    try:
        for server in servers:
            await server.start()
        yield addresses[0], addresses[1]
    finally:
        for server in servers:
            await server.stop(0)
