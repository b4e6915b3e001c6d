"""Simulated WatchGroups streams: the real pending changes of the manager's core, in order, until a stream breaks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from replication_manager.protocol.pending_changes import PendingChanges, Update
from rhino_core.ids import GroupId, Worker
from tests.simulation.world import Link
from worker_runtime.protocol import events as worker_ev
from worker_runtime.protocol.watching import events_of_update

if TYPE_CHECKING:
    from tests.simulation.manager import Manager
    from tests.simulation.sidecar import Sidecar

AGAIN_S = (0.1, 1.0)  # after which a sidecar registers anew, once its stream has broken


class Watch:
    """The watch of one sidecar process, since it has registered."""

    def __init__(self, manager: Manager, sidecar: Sidecar, interested: set[GroupId]) -> None:
        self._manager, self._me, self._world = manager, sidecar, sidecar.world
        self.pending = PendingChanges(manager.core, sidecar.name, interested)
        self._process = sidecar.process
        self._link = Link(self._world)
        self._due = False
        self._heard = False
        self._send(self.pending.snapshot())

    @property
    def open(self) -> bool:
        return self._link.open

    @property
    def connected(self) -> bool:
        """As the sidecar sees it: the manager has named the live workers, and the stream has not broken."""
        return self.open and self._heard

    def close(self) -> None:
        self._link.open = False

    def notify(self, due: bool) -> None:
        """Sends an update soon if `due`, with all changes until then."""
        if due and not self._due and self.open:
            self._due = True
            self._world.after(self._world.delay(), self._next)

    def _next(self) -> None:
        self._due = False
        if not self.open:
            return
        if self._manager.lost_call():
            self._break()
            return
        self._send(self.pending.take())

    def _break(self) -> None:
        """Both ends hear of it; the sidecar registers again, and watches."""
        self.close()
        me = self._me
        if me.up and me.process == self._process:
            me.later(self._world.random.uniform(*AGAIN_S), lambda: me.register() if me.watch is self else None)

    def _send(self, update: Update) -> None:
        membership = self._manager.core.membership
        workers = tuple(membership.present()), tuple(membership.absent())
        settling_s = self._manager.settling_s
        self._link.send(lambda: self._deliver(update, workers, settling_s), forward=True)

    def _deliver(
        self, update: Update, workers: tuple[tuple[Worker, ...], tuple[Worker, ...]], settling_s: float
    ) -> None:
        me = self._me
        if not me.up or me.process != self._process or me.watch is not self or not self._manager.reaches(me):
            return
        self._heard = True
        me.live, me.absent = workers
        me.disk.known = (*me.absent, *me.live)
        me.settled_at = self._world.now + settling_s
        known = me.machine.view.groups()
        for event in events_of_update(update.groups, update.left, update.forgotten, known, snapshot=update.snapshot):
            if me.up and me.process == self._process:
                me.handle(event)
            if isinstance(event, worker_ev.GroupAdopted) and self._world.chance(self._world.faults.repeat_message):
                self._world.after(self._world.delay() * 20, lambda event=event: self._late(event))  # type: ignore[misc]
        if me.up and me.process == self._process:
            me.retention.raise_floors(update.floors)

    def _late(self, event: worker_ev.Event) -> None:
        """As the reply to a question for the group may come, after a newer update."""
        if self._me.up and self._me.process == self._process:
            self._me.handle(event)
