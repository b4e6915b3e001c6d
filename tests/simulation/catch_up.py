"""A simulated catch-up: inventories of all members first, then what `wanted` names, file by file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rhino.ids import FileEntry, StoreId
from worker_runtime.core import blocks, closure
from worker_runtime.core import events as ev

if TYPE_CHECKING:
    from tests.simulation.sidecar import Sidecar

RETRY_S = 0.2
FILES_AT_ONCE = 4


class CatchUp:
    """Of one group at one epoch; begins anew when a member is out of reach, has not seen the epoch or lacks a file."""

    def __init__(self, sidecar: Sidecar, order: ev.StartCatchUp) -> None:
        self.order = order
        self._me = sidecar
        self._cluster, self._world = sidecar.cluster, sidecar.world
        self._again(0.0)

    def _again(self, delay_s: float) -> None:
        self._waiting = [worker.worker_id for worker in self.order.members]
        self._found: dict[StoreId, dict[str, tuple[str, FileEntry]]] = {}
        self._wanted: list[tuple[str, FileEntry]] | None = None
        self._next(delay_s + self._world.delay())

    def _next(self, delay_s: float) -> None:
        self._me.later(delay_s, self._step)

    def _step(self) -> None:
        known = self._me.machine.group(self.order.group)
        if not self._me.catching_up(self) or known is None or known.member(self._me.name) is None:
            return
        if self._waiting:
            self._ask(self._waiting[-1])
        else:
            self._pull()

    def _ask(self, member: str) -> None:
        other = self._cluster.network.reach(self._me.name, member)
        if other is None or other.machine.epoch(self.order.group) < self.order.epoch:
            self._again(RETRY_S)
            return
        self._waiting.pop()
        for store, files in other.disk.files.items():
            if store.group == self.order.group:
                kept = closure.kept_names(other.catalogue.store(store), other.disk.floors.get(store))
                everything = self._cluster.spread
                found = {name: (member, entry) for name, entry in files.items() if everything or name in kept}
                self._found.setdefault(store, {}).update(found)
        self._next(self._world.delay())

    def _pull(self) -> None:
        if self._wanted is None:
            self._wanted = [
                found[entry.name]
                for store, found in sorted(self._found.items())
                for entry in self._lacking(store, [e for _, e in found.values()])
            ]
            self._wanted.reverse()
        for _ in range(min(FILES_AT_ONCE, len(self._wanted))):
            member, entry = self._wanted.pop()
            other = self._cluster.network.reach(self._me.name, member)
            if other is None or not other.readable(entry.store, entry.name) or not self._me.pull(entry):
                self._again(RETRY_S)
                return
        if self._wanted:
            self._next(self._world.delay())
        else:
            self._me.handle(ev.CatchUpFinished(self.order.group, self.order.epoch))

    def _lacking(self, store: StoreId, entries: list[FileEntry]) -> Sequence[FileEntry]:
        here, group = self._me.catalogue.store(store), self._me.machine.group(store.group)
        if self._cluster.spread and group is not None:
            return blocks.lacking(self._me.worker, here, entries, group)
        return closure.wanted(here, entries, self._me.disk.floors.get(store))
