"""Composes the sidecar daemon of one worker: store, replication, both services, the manager's client."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import AsyncIterator, Callable

from rhino import failpoints
from rhino.errors import IntegrityError
from rhino.ids import Worker
from rhino.settings import SidecarSettings
from worker_runtime.allocator import keep_freed_memory
from worker_runtime.rpc.node import Node
from worker_runtime.storage.store import Store

log = logging.getLogger(__name__)


async def run_sidecar(settings: SidecarSettings, on_ready: Callable[[Worker], None]) -> None:
    """Runs until cancelled; then takes no new work, says farewell to the manager and ends.

    `on_ready` is called once: recovered, registered with the manager and serving. Waits for a manager that is not
    there yet, and outlives one that goes. Raises IntegrityError when a sync has failed.
    """
    keep_freed_memory()
    failpoints.arm(os.environ)
    async with _opened(settings) as store, _metrics(settings) as measure:
        try:
            await _run_node(settings, store, on_ready, measure)
        except ExceptionGroup as group:
            if store.syncer.failure is None:
                raise
            raise IntegrityError(store.syncer.failure) from group


async def _run_node(
    settings: SidecarSettings,
    store: Store,
    on_ready: Callable[[Worker], None],
    measure: Callable[[Node], None],
) -> None:
    async with asyncio.TaskGroup() as tasks:
        node = Node(settings, store, tasks)
        measure(node)
        try:
            await node.serve()
            log.info("serving, waiting for the manager", extra={"manager": settings.manager})
            await node.manager.ready.wait()
            await node.ready()
            log.info("ready", extra={"worker": node.me.worker_id, "peer_address": node.me.peer_address})
            on_ready(node.me)
            await store.syncer.failed.wait()
            raise IntegrityError("the disk cannot sync")  # as good as lost: others take over what it has promised
        finally:
            # In a task of its own: Python 3.11.2 takes a timeout in a cancelled one for a second cancellation.
            await asyncio.create_task(node.stop(), name="stop")


@contextlib.asynccontextmanager
async def _metrics(settings: SidecarSettings) -> AsyncIterator[Callable[[Node], None]]:
    """Serves metrics, if they are asked for, of the node that the caller gives."""
    if not settings.metrics_port:
        yield lambda node: None
        return
    from rhino.metrics import CollectorRegistry, exporting
    from worker_runtime.metrics import SidecarMetrics

    registry = CollectorRegistry()
    async with exporting(registry, settings.listen.rpartition(":")[0], settings.metrics_port):
        yield lambda node: SidecarMetrics(registry, node.replication, node.figures, node.scrubber).register()


@contextlib.asynccontextmanager
async def _opened(settings: SidecarSettings) -> AsyncIterator[Store]:
    store = await asyncio.to_thread(Store.open, settings.worker_id, settings.data_dir, settings.reserve_bytes)
    try:
        yield store
    finally:
        store.close()
