"""Retention: deletes files not needed by any version at or above a store's floor (ARCHITECTURE.md, "Retention")."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterable

from rhino_core.errors import RhinoError
from rhino_core.ids import Lane, StoreId, StoreVersion
from worker_runtime.protocol import events as ev
from worker_runtime.protocol.versions.attempts import crowded
from worker_runtime.replication import Replication

log = logging.getLogger(__name__)
DELAY_S = 1.0  # waits for more floors: those of many stores arrive together
SWEEP_S = 30.0  # interval of checks of all stores with a floor: pins end, and late files arrive


class Collector:
    """Raises floors and collects in the background."""

    def __init__(self, replication: Replication) -> None:
        self._replication = replication
        self._store = replication.store
        self._due: set[StoreId] = set()
        self._lately: set[StoreId] = set()  # stores collected since the last sweep
        self._wake = asyncio.Event()

    def floors(self, floors: Iterable[StoreVersion]) -> None:
        """Applies floors from the manager. Lower ones than the known ones are ignored."""
        for floor in floors:
            if self._store.retention.raise_floor(floor.store, floor.version):
                self._due.add(floor.store)
                self._wake.set()

    async def run(self) -> None:
        """Collect after new floors, and sweep.

        The sweep has its own schedule, because one running query would otherwise delay it for ever.
        """
        clock = asyncio.get_running_loop().time
        sweep_at = clock() + SWEEP_S
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(sweep_at):
                    await self._wake.wait()
                    await asyncio.sleep(DELAY_S)
            self._wake.clear()
            await self._collect_due()
            if clock() >= sweep_at:
                await self._sweep()
                sweep_at = clock() + SWEEP_S

    async def _sweep(self) -> None:
        """Collect stores without new floors, such as those of stopped queries. Skip recently collected stores."""
        catalogues = self._store.catalogue.stores().items()
        stores = {store for store, catalogue in catalogues if self._store.retention.floor(store) or crowded(catalogue)}
        self._due |= stores - self._lately
        self._lately = set()
        await self._collect_due()
        self._lately = set()
        await self._store.threads.run(Lane.BULK, self._tidy)

    def _tidy(self) -> None:
        self._store.partials.trim()
        self._store.inbox.sweep()

    async def _collect_due(self) -> None:
        due, self._due = self._due, set()
        for store in sorted(due):
            self._lately.add(store)
            try:
                await self._collect(store)
            except RhinoError as error:  # the next sweep tries again
                log.warning("cannot collect", extra={"store": str(store), "error": str(error)})
            await asyncio.sleep(0)  # lets commits run between two stores

    async def _collect(self, store: StoreId) -> None:
        names = await self._store.removal.collect(
            store, self._replication.view.names_in_use(store, self._store.retention.floor(store))
        )
        if names:
            log.info("collected", extra={"store": str(store), "files": len(names)})
            self._replication.post(ev.FilesRemoved(store, names, damaged=False))
