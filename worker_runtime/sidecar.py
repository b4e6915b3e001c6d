"""Composes the sidecar daemon of one worker: store, replication, both services, client of the manager."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import logging
import os
from collections import Counter
from collections.abc import AsyncIterator, Callable

from rhino_core import failpoints
from rhino_core.descriptors import raise_limit
from rhino_core.errors import IntegrityError
from rhino_core.health import Health
from rhino_core.http_server import serving_health
from rhino_core.ids import Worker
from rhino_core.security.audit import AuditLog
from rhino_core.security.choice import daemon_transport
from rhino_core.security.https import DaemonHttps, metrics_https
from rhino_core.settings import SidecarSettings
from rhino_core.tracing import tracing
from rhino_core.version import rhino_version
from worker_runtime.node import Node
from worker_runtime.storage.store import Store
from worker_runtime.tracing import CommitTraces

log = logging.getLogger(__name__)


async def run_sidecar(settings: SidecarSettings, on_ready: Callable[[Worker], None]) -> None:
    """Runs until cancelled. Then refuses new work, sends the farewell to the manager and ends.

    `on_ready` is called once, when the sidecar has recovered, is registered with the manager and serves. The sidecar
    waits for the start of a manager, and continues after its loss. Raises IntegrityError if a sync has failed.
    """
    keep_freed_memory()
    raise_limit()
    failpoints.arm(os.environ)
    health, transport = Health(), daemon_transport(settings)
    with contextlib.closing(AuditLog(settings.audit_log)) as audit:
        https = metrics_https(settings, transport, audit)
        async with (
            _opened(settings) as store,
            _monitoring(settings, health, https) as measure,
            tracing("rhino-sidecar", on=settings.traces) as traces,
        ):

            def compose(tasks: asyncio.TaskGroup) -> Node:
                node = Node(settings, store, tasks, health, transport, audit)
                measure(node)
                if traces is not None:
                    CommitTraces(node.replication, traces)
                return node

            try:
                await _run_node(settings, store, on_ready, compose)
            except ExceptionGroup as group:
                if store.syncer.failure is None:
                    raise
                raise IntegrityError(store.syncer.failure) from group


async def _run_node(
    settings: SidecarSettings,
    store: Store,
    on_ready: Callable[[Worker], None],
    compose: Callable[[asyncio.TaskGroup], Node],
) -> None:
    async with asyncio.TaskGroup() as tasks:
        node = compose(tasks)
        try:
            await node.serve()
            log.info("serving, waiting for the manager", extra={"manager": settings.manager})
            await node.manager.ready.wait()
            await node.ready()
            about = {"worker": node.me.worker_id, "peer_address": node.me.peer_address}
            log.info("ready", extra={"version": rhino_version(), **about})
            on_ready(node.me)
            await store.syncer.failed.wait()
            raise IntegrityError("the disk cannot sync")  # the store counts as lost: other workers take over
        finally:
            # In a separate task: Python 3.11.2 mistakes a timeout in a cancelled task for a second cancellation.
            await asyncio.create_task(node.stop(), name="stop")


@contextlib.asynccontextmanager
async def _monitoring(
    settings: SidecarSettings, health: Health, https: DaemonHttps | None
) -> AsyncIterator[Callable[[Node], None]]:
    """Serves health, and metrics of the caller's node, as far as they are configured."""
    host, closed = settings.listen_host, Counter[str]()
    async with serving_health(host, settings.health_port, health, closed):
        if not settings.metrics_port:
            yield lambda node: None
            return
        from rhino_core.metrics import CollectorRegistry, exporting
        from worker_runtime.metrics import SidecarMetrics

        registry = CollectorRegistry()
        async with exporting(registry, host, settings.metrics_port, health, https, closed):
            yield lambda node: SidecarMetrics(registry, node).register()


@contextlib.asynccontextmanager
async def _opened(settings: SidecarSettings) -> AsyncIterator[Store]:
    store = await asyncio.to_thread(
        Store.open, settings.worker_id, settings.data_dir, settings.reserve_bytes, empty_store=settings.empty_store
    )
    try:
        yield store
    finally:
        store.close()


_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # malloc.h
KEEP_BYTES = 64 * 1024 * 1024  # freed memory at the top of the heap that is kept before it returns to the system
MMAP_BYTES = 32 * 1024 * 1024  # the most that glibc allows; larger requests are mapped, and unmapped when freed


def keep_freed_memory() -> bool:
    """Applies the settings to the whole process.

    Returns False if the C library has no mallopt (musl, macOS): the process is only slower then.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    return bool(mallopt(_M_MMAP_THRESHOLD, MMAP_BYTES)) and bool(mallopt(_M_TRIM_THRESHOLD, KEEP_BYTES))
