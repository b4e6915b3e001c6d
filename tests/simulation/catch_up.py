"""A simulated catch-up: the real core decides whose inventories count and what is pulled; file by file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.simulation.disk import opens
from worker_runtime.protocol import events as ev
from worker_runtime.protocol.copies import pulling

if TYPE_CHECKING:
    from tests.simulation.sidecar import Sidecar

RETRY_S = 0.2
PATIENCE_S = 0.1
FILES_AT_ONCE = 4


class CatchUp:
    """The catch-up of one group at one epoch.

    It begins again when a member lacks a file, and once it has pulled what there is while a member is out of reach or
    has not seen the epoch.
    """

    def __init__(self, sidecar: Sidecar, order: ev.StartCatchUp) -> None:
        self.order = order
        self._me = sidecar
        self._cluster, self._world = sidecar.cluster, sidecar.world
        self._again(0.0)

    def _again(self, delay_s: float) -> None:
        self._waiting = [worker.worker_id for worker in self.order.members]
        self._answers: list[pulling.Inventory | None] = []
        self._inventories: list[pulling.Inventory] = []
        self._finds: list[pulling.Found] | None = None
        self._pulling = False
        self._next(delay_s + self._world.delay())

    def _next(self, delay_s: float) -> None:
        self._me.later(delay_s, self._step)

    def _step(self) -> None:
        known = self._me.machine.view.group(self.order.group)
        if not self._me.catching_up(self) or known is None or known.member(self._me.name) is None:
            return
        if self._waiting:
            self._answers.append(self._ask(self._waiting.pop()))
            self._next(self._world.delay())
        elif not self._pulling:
            self._compare()
        else:
            self._pull()

    def _ask(self, member: str) -> pulling.Inventory | None:
        other = self._cluster.network.reach(self._me.name, member)
        if other is None:
            return None
        group = self.order.group
        process, epoch = (self._me.name, self._me.process), other.disk.epoch(group)
        wanted = self._cluster.checkers.wanted_of(group)
        versions = frozenset(v for v in wanted if opens(other.disk.files[v.store], v.version))
        self._cluster.checkers.catch_ups.inventory(process, group, member, epoch, versions)
        return pulling.Inventory(other.worker, other.inventory(group), other.machine.view.epoch(group))

    def _compare(self) -> None:
        """A member that was whole waits as long as missing files come through the chain."""
        self._inventories = pulling.counted(self.order, self._answers)
        before, self._finds = self._finds, self._lacking()
        if pulling.left_to_the_chain(self.order, before, self._finds):
            self._next(PATIENCE_S)
            return
        self._pulling = True
        self._finds.reverse()
        self._pull()

    def _lacking(self) -> list[pulling.Found]:
        me, group = self._me, self._me.machine.view.group(self.order.group)
        return pulling.finds(self._inventories, me.catalogue, me.worker, group, me.disk.floors.get)

    def _pull(self) -> None:
        assert self._finds is not None
        for _ in range(min(FILES_AT_ONCE, len(self._finds))):
            if not self._me.pull_from(self._finds.pop()):
                self._again(RETRY_S)
                return
        if self._finds:
            self._next(self._world.delay())
        elif self._lacking():  # retention has deleted what later files need
            self._again(0.0)
        elif len(self._inventories) < len(self.order.members):
            self._again(RETRY_S)
        else:
            self._me.handle(ev.CatchUpFinished(self.order.group, self.order.epoch))
