"""A simulated worker's excess copies: the real ExcessMachine, asking the other workers one by one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from rhino_core.ids import Epoch, GroupId, StoreId, Version, Worker
from tests.simulation.brief import brief
from worker_runtime.protocol import events as ev
from worker_runtime.protocol.copies import excess
from worker_runtime.protocol.copies.pulling import Inventory

if TYPE_CHECKING:
    from tests.simulation.sidecar import Sidecar

GRACE_S = 1.0


class Excess:
    """The excess machine of one sidecar process, and its `Holdings`."""

    def __init__(self, sidecar: Sidecar) -> None:
        self._me = sidecar
        self._cluster, self._world = sidecar.cluster, sidecar.world
        self.machine = excess.ExcessMachine(sidecar.worker, sidecar.catalogue, self, GRACE_S)
        self._armed: float | None = None
        self._losses = 0  # in the cluster, when the members were asked

    def epoch(self, group: GroupId) -> Epoch:
        return self._me.machine.view.epoch(group)

    def floor(self, store: StoreId) -> Version | None:
        return self._me.disk.floors.get(store)

    def pinned(self, store: StoreId) -> Iterable[Version]:
        return {pin.version for pin in self._me.pins.values() if pin.store == store}

    def in_use(self, store: StoreId) -> Iterable[str]:
        return self._me.machine.view.names_in_use(store, self.floor(store))

    def observe(self, event: ev.Event) -> None:
        """Forwards events of the chain machine that this machine needs, too."""
        match event:
            case ev.FileStored(entry=entry) | ev.CommitRequested(entry=entry):
                if self.machine.outside(entry.store.group):
                    self._handle(excess.GroupUsed(entry.store.group))
            case ev.GroupAdopted() | ev.GroupLeft() | ev.JobForgotten():
                self._handle(event)

    def _handle(self, event: excess.Event) -> None:
        for effect in self.machine.handle(event, now=self._world.now):
            if self._world.verbose:
                self._world.say(f"  {self._me.name} -> {brief(effect)}")
            match effect:
                case excess.AskMembers():
                    _Asking(self, self._me, effect)
                case excess.RemoveExcess():
                    self._remove(effect)
        self.machine.check_invariants()
        due = self.machine.next_deadline()
        if due is not None and (self._armed is None or due < self._armed):
            self._armed = due
            self._me.at(due, lambda: self._tick(due))

    def _tick(self, due: float) -> None:
        if self._armed == due:
            self._armed = None
            self._handle(ev.Tick())

    def answered(self, answers: excess.MembersAnswered, losses: int) -> None:
        self._losses = losses
        self._handle(answers)

    def _remove(self, effect: excess.RemoveExcess) -> None:
        store = effect.store
        if self.epoch(store.group) == effect.epoch:
            self._world.say(f"{self._me.name} deletes {len(effect.names)} files of {store} in excess")
            self._cluster.checkers.excess_deleted(
                self._me.incarnation, self._cluster.disks(), effect, self.pinned(store), losses_before=self._losses
            )
            self._me.remove(store, effect.names, damaged=False)
        self._me.later(0.0, lambda: self._handle(excess.ExcessRemoved(store.group, effect.epoch)))


class _Asking:
    """One round of questions."""

    def __init__(self, excess_: Excess, sidecar: Sidecar, order: excess.AskMembers) -> None:
        self._excess, self._me, self._order = excess_, sidecar, order
        self._losses = sidecar.cluster.checkers.losses
        self._waiting = list(order.members)
        self._answers: list[Inventory] = []
        self._next()

    def _next(self) -> None:
        self._me.later(self._me.world.delay(), self._step)

    def _step(self) -> None:
        if self._waiting:
            self._ask(self._waiting.pop())
            self._next()
            return
        group, epoch = self._order.group, self._order.epoch
        self._excess.answered(excess.MembersAnswered(group, epoch, tuple(self._answers)), self._losses)

    def _ask(self, member: Worker) -> None:
        other = self._me.cluster.network.reach(self._me.name, member.worker_id)
        if other is None:
            return
        epoch = other.machine.view.epoch(self._order.group)
        self._answers.append(Inventory(other.worker, other.inventory(self._order.group), epoch))
