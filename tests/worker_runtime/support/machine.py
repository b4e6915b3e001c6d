"""Parts of the tests of machine that other tests use as well."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from rhino_core.ids import Epoch, FileEntry, GroupId, Lane, ReplicaGroup, Worker
from tests.worker_runtime.scenario import GROUP, group, worker
from worker_runtime.protocol import events as ev
from worker_runtime.protocol.chain.machine import ChainMachine
from worker_runtime.protocol.versions.closure import Catalogue

E = TypeVar("E")


A, B, C = worker("a"), worker("b"), worker("c")


class Rig:
    """A machine with its catalogue; events in, effects out, invariants checked after each."""

    def __init__(
        self,
        me: Worker,
        epochs: dict[GroupId, Epoch] | None = None,
        members: dict[GroupId, tuple[str, ...]] | None = None,
    ) -> None:
        self.me = me
        self.catalogue = Catalogue()
        self.machine = ChainMachine(me, self.catalogue, epochs or {}, members=members)
        self.now = 100.0
        self.transfer = 0

    def do(self, event: ev.Event) -> list[ev.Effect]:
        effects = self.machine.handle(event, now=self.now)
        self.machine.check_invariants()
        return effects

    def adopt(self, value: ReplicaGroup) -> list[ev.Effect]:
        """Adopts, and ends the catch-up that it starts."""
        effects = self._with_bytes(self.do(ev.GroupAdopted(value)))
        for start in only(effects, ev.StartCatchUp):
            effects += self.do(ev.CatchUpFinished(start.group, start.epoch))
        return effects

    def connect(self, *peers: str) -> list[ev.Effect]:
        return [e for p in peers for lane in Lane for e in self.do(ev.PeerConnected(p, lane))]

    def stored(self, entry: FileEntry, *, written: bool = False) -> list[ev.Effect]:
        self.catalogue.add(entry)
        return self.do(ev.FileStored(entry, written))

    def commit(self, entry: FileEntry, request: int = 1, timeout: float = 10.0) -> list[ev.Effect]:
        self.catalogue.add(entry)
        return self.do(ev.CommitRequested(request, entry, timeout))

    def receive(self, entry: FileEntry, epoch: int, *chain: Worker, upstream: str = "a") -> list[ev.Effect]:
        """Begin and, when accepted, all bytes."""
        self.transfer += 1
        return self._with_bytes(self.do(ev.BeginReceived(upstream, self.transfer, entry, Epoch(1, epoch), chain)))

    def writer(self, worker_id: str, *, allowed: bool) -> list[ev.Effect]:
        """The manager's answer about a worker that is no member."""
        return self._with_bytes(self.do(ev.WriterNamed(GROUP, worker_id, allowed)))

    def _with_bytes(self, effects: list[ev.Effect]) -> list[ev.Effect]:
        """All bytes of the accepted transfers come."""
        for accepted in only(effects, ev.ReceiveFile):
            self.catalogue.add(accepted.entry)
            effects = effects + self.do(ev.TransferStored(accepted.transfer))
        return effects

    def ack(
        self, entry: FileEntry, epoch: int, member: Worker, *, holds: bool = True, sender: str = "b"
    ) -> list[ev.Effect]:
        return self.do(ev.AckReceived(sender, entry.store, entry.name, Epoch(1, epoch), member, holds))


def only(effects: Sequence[ev.Effect], kind: type[E]) -> list[E]:
    return [e for e in effects if isinstance(e, kind)]


def owner(members: str = "abc", required: int = 2) -> Rig:
    rig = Rig(A)
    rig.adopt(group(1, members, required=required))
    rig.connect("b", "c")
    return rig
