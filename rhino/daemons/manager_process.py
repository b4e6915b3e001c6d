"""The manager process: replication manager and handover manager with one server and one journal."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections import Counter
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

from handover_manager.adapt.policy import policy_of
from handover_manager.archive.archiver import Archiver
from handover_manager.service.service import HandoverService
from handover_manager.service.tracing import HandoverTraces
from replication_manager.service.service import ReplicationService
from rhino.daemons.cluster_port import ClusterPort
from rhino.daemons.witnessed_journal import WitnessedJournal, led_journal
from rhino_archive.bucket import used
from rhino_core import failpoints
from rhino_core.descriptors import raise_limit
from rhino_core.folder import claim
from rhino_core.health import Health, Notifier
from rhino_core.http_server import serving_health
from rhino_core.journal import Journal
from rhino_core.rpc.server import Server
from rhino_core.security.audit import AuditLog
from rhino_core.security.choice import daemon_transport
from rhino_core.security.https import DaemonHttps, metrics_https
from rhino_core.security.transport import Transport
from rhino_core.settings import ManagerSettings
from rhino_core.tracing import tracing
from rhino_core.turns import Turns
from rhino_core.version import rhino_version

log = logging.getLogger(__name__)
STOP_GRACE_S = 0.5
HEALTH_S = 1.0  # interval between reports to gRPC health
HUNG_S = 5.0  # the query of a driver that hangs waits for the end of its connection
CALLS_MAX = 32  # concurrent calls of one sidecar, driver or command


def _bind(server: Server, listen: str) -> str:
    """Binds the address and returns it with the actual port. Raises UnavailableError, InvalidSettingError."""
    host = listen.rpartition(":")[0]
    port = server.bind(listen)
    return f"{host}:{port}"


@contextlib.asynccontextmanager
async def _metrics(
    settings: ManagerSettings,
    replication: ReplicationService,
    handover: HandoverService,
    health: Health,
    audit: AuditLog,
    https: DaemonHttps | None,
    closed: Counter[str],
) -> AsyncIterator[None]:
    if not settings.metrics_port:
        yield
        return
    from handover_manager.service.metrics import HandoverMetrics
    from replication_manager.service.metrics import ReplicationMetrics
    from rhino_core.metrics import ArchiveMetrics, AuditMetrics, CollectorRegistry, exporting

    registry = CollectorRegistry()
    groups = ReplicationMetrics(replication.core, registry, replication.counted_witnesses)
    queries = HandoverMetrics(handover.core, registry, handover.archive)
    AuditMetrics(registry, lambda: audit.missing_total)
    ArchiveMetrics(registry, used)
    handover.subscribe(queries.announced)
    replication.runtime.subscribe(groups.lags.changed)
    replication.runtime.on_reports(groups.lags.changed)
    host = settings.listen.rpartition(":")[0]
    pages = exporting(registry, host, settings.metrics_port, health, https, closed)
    async with pages, asyncio.TaskGroup() as following:
        tasks = [following.create_task(walk) for walk in (groups.follow(), queries.follow())]
        yield
        for task in tasks:
            task.cancel()


async def _report(health: Health, server: Server, notifier: Notifier) -> None:
    """Keeps gRPC health and systemd's status up to date, until cancelled."""
    while True:
        ready = health.ready()
        await server.report(alive=health.alive().good, ready=ready.good)
        notifier.report(ready)
        await asyncio.sleep(HEALTH_S)


async def _witnessed(settings: ManagerSettings, transport: Transport) -> Journal:
    """Waits until this manager leads. A new journal begins with the one on this disk, if there is one."""
    journal = await led_journal(settings, transport)
    if journal.fresh and settings.bootstrap and (settings.data_dir / "CURRENT").exists():
        with contextlib.closing(Journal(settings.data_dir)) as former:
            journal.take_over(former)
        log.info("the witnesses have the journal", extra={"former": str(settings.data_dir)})
    return journal


async def run_manager(settings: ManagerSettings, on_ready: Callable[[str], None]) -> None:
    """Serves until cancelled, then stops cleanly. `on_ready` receives "host:port" once both services answer.

    With witnesses it waits until it leads. Raises PreconditionError for an empty journal without `bootstrap` and for
    another folder than the manager's. Raises UnavailableError for an address in use, and when another manager leads.
    """
    raise_limit()
    failpoints.arm(os.environ)
    transport, health, closed = daemon_transport(settings), Health(), Counter[str]()
    with contextlib.closing(AuditLog(settings.audit_log)) as audit:
        async with serving_health(settings.listen.rpartition(":")[0], settings.health_port, health, closed):
            notifier = Notifier()
            if settings.witnesses:
                notifier.report(health.ready())  # a standby has started
                journal: Journal = await _witnessed(settings, transport)
            else:
                claim(settings.data_dir, "manager")
                journal = Journal(settings.data_dir, bootstrap=settings.bootstrap)
            with contextlib.closing(journal):
                await _serve(settings, journal, transport, _Surroundings(health, notifier, audit, closed), on_ready)


@dataclass(frozen=True, slots=True)
class _Surroundings:
    """Parts of the process for those who watch it."""

    health: Health
    notifier: Notifier
    audit: AuditLog
    closed: Counter[str]


async def _serve(
    settings: ManagerSettings,
    journal: Journal,
    transport: Transport,
    around: _Surroundings,
    on_ready: Callable[[str], None],
) -> None:
    health, audit = around.health, around.audit
    server = Server(transport=transport, audit=audit, reflect=settings.reflection, calls_max=CALLS_MAX, hung_s=HUNG_S)
    try:
        address = _bind(server, settings.listen)
        turns = Turns()
        replication = ReplicationService(journal, settings, turns)
        handover = HandoverService(
            journal,
            ClusterPort(replication),
            forget_grace_s=settings.forget_grace_s,
            transport=transport,
            policy=policy_of(settings),
            turns=turns,
            archiver=Archiver(settings, journal, transport) if settings.archive else None,
        )
        replication.attach(server)
        handover.attach(server)
        await server.start()
        https = metrics_https(settings, transport, audit)
        async with (
            _metrics(settings, replication, handover, health, audit, https, around.closed),
            tracing("rhino-manager", on=settings.traces) as traces,
            asyncio.TaskGroup() as tasks,
        ):
            if traces is not None:
                handover.subscribe(HandoverTraces(traces).changed)
            tasks.create_task(replication.run(), name="replication manager")
            tasks.create_task(handover.run(), name="handover manager")
            if isinstance(journal, WitnessedJournal):
                tasks.create_task(journal.until_over(), name="leadership")
            health.begin({"journal": lambda: journal.failure}, {})
            await server.ready()
            tasks.create_task(_report(health, server, around.notifier), name="health")
            extra = {"version": rhino_version(), "address": address, "generation": journal.generation}
            log.info("manager ready", extra=extra)
            on_ready(address)
    finally:
        await server.stop(STOP_GRACE_S)
