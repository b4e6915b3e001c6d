"""Retention: deletes what no version at or above a store's floor needs (ARCHITECTURE.md, "Retention")."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable

from rhino.errors import RhinoError
from rhino.ids import Lane, StoreId, StoreVersion
from worker_runtime.core import events as ev
from worker_runtime.replication import Replication

log = logging.getLogger(__name__)
DELAY_S = 1.0  # floors of many stores arrive together
SWEEP_S = 30.0  # all stores with a floor are looked at this often: pins end, late files arrive


class Collector:
    """Raises floors and collects in the background."""

    def __init__(self, replication: Replication) -> None:
        self._replication = replication
        self._store = replication.store
        self._due: set[StoreId] = set()
        self._wake = asyncio.Event()

    def floors(self, floors: Iterable[StoreVersion]) -> None:
        """What the manager says; lower ones than known are ignored."""
        for floor in floors:
            if self._store.raise_floor(floor.store, floor.version):
                self._due.add(floor.store)
                self._wake.set()

    async def run(self) -> None:
        while True:
            try:
                async with asyncio.timeout(SWEEP_S):
                    await self._wake.wait()
                await asyncio.sleep(DELAY_S)
            except TimeoutError:
                self._due.update(store for store in self._store.catalogue.stores() if self._store.floor(store))
                await self._store.threads.run(Lane.BULK, self._store.partials.trim)
            self._wake.clear()
            due, self._due = self._due, set()
            for store in sorted(due):
                try:
                    await self._collect(store)
                except RhinoError as error:  # the next sweep tries again
                    log.warning("cannot collect", extra={"store": str(store), "error": str(error)})

    async def _collect(self, store: StoreId) -> None:
        names = await self._store.collect(store, self._replication.machine.busy_names(store, self._store.floor(store)))
        if names:
            log.info("collected", extra={"store": str(store), "files": len(names)})
            self._replication.post(ev.FilesRemoved(store, names, damaged=False))
