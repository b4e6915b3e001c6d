"""Parts of the tests of service that other tests use as well."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeAlias

from replication_manager.service.service import ReplicationService
from rhino_core.journal import Journal
from rhino_core.rpc.channel import aio_channel
from rhino_core.rpc.server import Server
from rhino_core.settings import ManagerSettings
from rhino_pb import common_pb2, replication_pb2_grpc

Stub: TypeAlias = Any  # the stubs do not tell the asyncio one apart


GROUP = common_pb2.GroupId(job="job", operator=0, partition=1)


@asynccontextmanager
async def manager(folder: Path, *, bootstrap: bool = True, lease_s: float = 1.0) -> AsyncIterator[Stub]:
    async with served(folder, bootstrap=bootstrap, lease_s=lease_s) as (stub, _):
        yield stub


@asynccontextmanager
async def served(
    folder: Path, *, bootstrap: bool = True, lease_s: float = 1.0
) -> AsyncIterator[tuple[Stub, ReplicationService]]:
    """With the object that the handover manager of the same process calls."""
    journal = Journal(folder, bootstrap=bootstrap)
    server = Server()
    service = ReplicationService(
        journal, ManagerSettings(folder, "127.0.0.1:0", heartbeat_interval_s=0.05, lease_s=lease_s, suspect_lease_s=0.2)
    )
    service.attach(server)
    port = server.bind("127.0.0.1:0")
    await server.start()
    running = asyncio.create_task(service.run())
    channel = aio_channel(f"127.0.0.1:{port}")
    try:
        yield replication_pb2_grpc.ReplicationManagerStub(channel), service
    finally:
        await channel.close(None)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await server.stop(0)
        journal.close()


def worker(name: str) -> common_pb2.Worker:
    return common_pb2.Worker(worker_id=name, incarnation=f"{name}/1", host=name, peer_address=f"{name}:1")
