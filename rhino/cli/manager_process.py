"""The manager process: replication manager and handover manager behind one server, with one journal."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import AsyncIterator, Callable

from handover_manager.rpc.service import HandoverService
from replication_manager.rpc.service import ReplicationService
from rhino import failpoints
from rhino.errors import UnavailableError
from rhino.journal import Journal
from rhino.rpc.server import Server
from rhino.settings import ManagerSettings

log = logging.getLogger(__name__)
STOP_GRACE_S = 0.5
_ANY = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]"}


def _bind(server: Server, listen: str) -> tuple[str, str]:
    """("host:port" for others, "host:port" for this process itself); raises UnavailableError when it is taken."""
    host = listen.rpartition(":")[0]
    try:
        port = server.bind(listen)
    except RuntimeError as error:
        raise UnavailableError(f"cannot listen on {listen}: is another manager running there?") from error
    return f"{host}:{port}", f"{_ANY.get(host, host)}:{port}"


@contextlib.asynccontextmanager
async def _metrics(
    settings: ManagerSettings, replication: ReplicationService, handover: HandoverService
) -> AsyncIterator[None]:
    if not settings.metrics_port:
        yield
        return
    from handover_manager.metrics import HandoverMetrics
    from replication_manager.metrics import ReplicationMetrics
    from rhino.metrics import CollectorRegistry, exporting

    registry = CollectorRegistry()
    ReplicationMetrics(replication.core, registry)
    handover.notice_announced(HandoverMetrics(handover.core, registry).announced)
    async with exporting(registry, settings.listen.rpartition(":")[0], settings.metrics_port):
        yield


async def run_manager(settings: ManagerSettings, on_ready: Callable[[str], None]) -> None:
    """Serves until cancelled, then stops cleanly. `on_ready` gets "host:port" once both services answer.

    Raises PreconditionError for an empty journal without `bootstrap`, UnavailableError for a taken address.
    """
    failpoints.arm(os.environ)
    journal = Journal(settings.data_dir, bootstrap=settings.bootstrap)
    server = Server(reflect=settings.reflection)
    try:
        address, own_address = _bind(server, settings.listen)
        replication = ReplicationService(journal, settings)
        handover = HandoverService(journal, own_address)
        replication.attach(server)
        handover.attach(server)
        await server.start()
        async with _metrics(settings, replication, handover), asyncio.TaskGroup() as tasks:
            tasks.create_task(replication.run(), name="replication manager")
            tasks.create_task(handover.run(), name="handover manager")
            await server.ready()
            log.info("manager ready", extra={"address": address, "generation": journal.generation})
            on_ready(address)
    finally:
        await server.stop(STOP_GRACE_S)
        journal.close()
