"""A simulated sidecar's retention: floors rise, and what the core says may go, goes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from rhino_core.ids import StoreId, StoreVersion
from worker_runtime.protocol.versions import closure

if TYPE_CHECKING:
    from tests.simulation.sidecar import Sidecar

COLLECT_S, SWEEP_S = 0.4, 3.0  # after a floor has risen, and anyway


class Retention:
    """The retention of one sidecar process."""

    def __init__(self, sidecar: Sidecar) -> None:
        self._me = sidecar
        self._due: set[StoreId] = set()
        self._me.later(SWEEP_S, self._sweep)

    def raise_floors(self, floors: Iterable[StoreVersion]) -> None:
        mine = self._me.disk.floors
        for floor in floors:
            raised = closure.raise_floor(mine.get(floor.store), floor.version)
            if raised != mine.get(floor.store):
                mine[floor.store] = raised
                self._collect_soon(floor.store)

    def _collect_soon(self, store: StoreId) -> None:
        if store not in self._due:
            self._due.add(store)
            self._me.later(COLLECT_S, lambda: self._collect(store))

    def _sweep(self) -> None:
        self._me.later(SWEEP_S, self._sweep)
        for store in sorted(self._me.disk.floors):
            if self._me.up:
                self._collect(store)

    def _collect(self, store: StoreId) -> None:
        self._due.discard(store)
        floor = self._me.disk.floors.get(store)
        if floor is None:  # its job may have been forgotten meanwhile
            return
        pins = {pin.version for pin in self._me.pins.values() if pin.store == store}
        busy = self._me.machine.view.names_in_use(store, floor)
        names = closure.collectable(self._me.catalogue.store(store), floor, pins, busy)
        if names:
            self._me.cluster.checkers.deleted(self._me.disk, store, names, pins)
            self._me.remove(store, names, damaged=False)
