"""A simulated sidecar: the real ChainMachine over a disk that survives crashes and memory that does not."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rhino.ids import Epoch, FileEntry, FileKind, GroupId, Lane, ReplicaGroup, StoreId, StoreVersion, Version, Worker
from worker_runtime.core import chain as chain_core
from worker_runtime.core import closure
from worker_runtime.core import events as ev

if TYPE_CHECKING:
    from tests.simulation.cluster import Cluster

TICK_S = 0.1
BEAT_S = 0.5
TRANSFERS = itertools.count(1)
Key = tuple[StoreId, str]


@dataclass
class Disk:
    """What a process crash leaves: files, the visible ones, the highest epochs, floors."""

    uuid: str
    files: dict[Key, FileEntry] = field(default_factory=dict)
    visible: set[Key] = field(default_factory=set)
    epochs: dict[GroupId, Epoch] = field(default_factory=dict)
    floors: dict[StoreId, Version] = field(default_factory=dict)

    def catalogue(self) -> closure.Catalogue:
        found = closure.Catalogue()
        for entry in self.files.values():
            found.add(entry)
        return found

    def holds(self, version: StoreVersion) -> bool:
        """By this disk alone, computed anew: independent of what the machine believes."""
        entries = [entry for (store, _), entry in self.files.items() if store == version.store]
        return closure.StoreCatalogue(entries).holds(version.version)


class Sidecar:
    """One worker. `process` numbers its lives: actions of an earlier one do nothing."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        self.cluster = cluster
        self.world = cluster.world
        self.name = name
        self.up = False
        self.process = 0
        self.disk = Disk("1")
        self.commits: dict[int, Callable[[ev.CompleteCommit], None]] = {}

    # ------------------------------------------------------------ life

    @property
    def worker(self) -> Worker:
        return Worker(self.name, f"{self.name}/{self.disk.uuid}", self.name, f"{self.name}:1")

    def start(self) -> None:
        self.up = True
        self.process += 1
        self.written: dict[StoreId, Version] = {}
        self._upstream = ""
        self._catalogue = self.disk.catalogue()
        self.machine = chain_core.ChainMachine(self.worker, self._catalogue, self.disk.epochs)
        self._catch_ups: dict[GroupId, int] = {}
        self.world.say(f"{self.name} starts")
        self._later(0.01, self._register)
        self._later(TICK_S, self._tick)
        self._later(BEAT_S, self._beat)

    def crash(self, *, lose_disk: bool = False) -> None:
        self.world.say(f"{self.name} crashes{' and loses its disk' if lose_disk else ''}")
        self.up = False
        self.process += 1
        self.cluster.break_links(self.name)
        self.commits.clear()
        if lose_disk:
            self.disk = Disk(str(int(self.disk.uuid) + 1))

    def _later(self, delay_s: float, action: Callable[[], object]) -> None:
        """Runs `action` unless this process has ended by then."""
        process = self.process

        def run() -> None:
            if self.up and self.process == process:
                action()

        self.world.after(delay_s, run)

    def _tick(self) -> None:
        self.handle(ev.Tick())
        self._later(TICK_S, self._tick)

    # ------------------------------------------------------------ manager

    def _register(self) -> None:
        if not self.cluster.manager.register(self):
            self._later(0.3, self._register)

    def _beat(self) -> None:
        if not self.world.chance(self.world.faults.drop_beat) and not self.cluster.manager.beat(self):
            self._register()
        self._later(BEAT_S, self._beat)

    # ------------------------------------------------------------ core

    def handle(self, event: ev.Event) -> None:
        for effect in self.machine.handle(event, now=self.world.now):
            self._execute(effect)
        self.machine.check_invariants()

    def _execute(self, effect: ev.Effect) -> None:
        match effect:
            case ev.PersistEpoch(group, epoch):
                self.cluster.checkers.epoch_persisted(self.disk, group, epoch)
                self.disk.epochs[group] = epoch
            case ev.AskForGroup(group):
                self._later(self.world.delay(), lambda: self.cluster.manager.resolve(self, group))
            case ev.Connect(to, lane):
                self._connect(to.worker_id, lane)
            case ev.OfferFile():
                self._offer(effect)
            case ev.ReceiveFile(transfer, entry):
                upstream = self._upstream
                self._later(self.world.delay(), lambda: self._write(transfer, entry, upstream))
            case ev.SendAck() | ev.SendRefusal():
                self._reply(effect)
            case ev.StartCatchUp(group, epoch, members):
                self._catch_up(group, epoch, members)
            case ev.MakeVisible(store, name):
                self.disk.visible.add((store, name))
                self.cluster.checkers.visible(self.disk, store, name)
            case ev.CompleteCommit(request):
                waiting = self.commits.pop(request, None)
                if waiting is not None:
                    waiting(effect)
            case ev.ReportGroup(_):
                self._later(0.01, lambda: self.cluster.manager.beat(self))
            case ev.DiscardTransfer() | ev.WithdrawOffer():
                return

    # ------------------------------------------------------------ network

    def _connect(self, to: str, lane: Lane) -> None:
        def attempt() -> None:
            other = self.cluster.sidecars[to]
            if self.cluster.link(self.name, to, lane) is not None:
                return
            if not other.up:
                self._later(0.3, attempt)
                return
            self.cluster.open_link(self.name, to, lane)
            self.handle(ev.PeerConnected(to, lane))

        self._later(self.world.delay(), attempt)

    def _offer(self, offer: ev.OfferFile) -> None:
        link = self.cluster.link(self.name, offer.to.worker_id, offer.lane)
        if link is None:
            return
        receiver, transfer = self.cluster.sidecars[offer.to.worker_id], next(TRANSFERS)
        begin = ev.BeginReceived(self.name, transfer, offer.entry, offer.epoch, offer.chain)
        link.send(lambda: receiver.receive(begin), forward=True)
        if self.world.chance(self.world.faults.break_link):
            self.world.after(self.world.delay(), lambda: self.cluster.break_link(self.name, receiver.name, offer.lane))

    def receive(self, begin: ev.BeginReceived) -> None:
        self._upstream = begin.upstream
        self.handle(begin)

    def _write(self, transfer: int, entry: FileEntry, upstream: str) -> None:
        if self.world.chance(self.world.faults.fail_write):
            reason = self.world.random.choice([ev.Refusal.CHECKSUM, ev.Refusal.STORAGE, None])
            self.handle(ev.TransferFailed(transfer, reason, "injected"))
            if reason is None:  # the stream broke, for the sender too
                self.cluster.break_link(upstream, self.name, entry.lane)
            return
        self.store(entry)
        self.handle(ev.TransferStored(transfer))

    def _reply(self, reply: ev.SendAck | ev.SendRefusal) -> None:
        link = self.cluster.link(reply.upstream, self.name, reply.lane)
        if link is None:
            return
        upstream = self.cluster.sidecars[reply.upstream]
        event: ev.Event
        if isinstance(reply, ev.SendAck):
            event = ev.AckReceived(self.name, reply.store, reply.name, reply.epoch, reply.member, reply.holds)
        else:
            event = ev.RefusalReceived(
                self.name, reply.store, reply.name, reply.reason, reply.current_epoch, reply.message, reply.member
            )
        link.send(lambda: upstream.handle(event), forward=False)

    # ------------------------------------------------------------ disk

    def store(self, entry: FileEntry) -> None:
        """The bytes are on disk, in the index and in the catalogue: all of it before any event that tells of them."""
        self.cluster.checkers.stored(entry)
        self.disk.files[entry.store, entry.name] = entry
        self._catalogue.add(entry, self.world.now)

    def collect(self, floor: StoreVersion) -> None:
        """Retention: what the core says may go, goes."""
        self.disk.floors[floor.store] = floor.version
        local = self._catalogue.store(floor.store)
        names = closure.collectable(local, floor.version, (), self.machine.busy_names(floor.store))
        for name in names:
            self.disk.files.pop((floor.store, name), None)
            self.disk.visible.discard((floor.store, name))
            self._catalogue.discard(floor.store, name)
        if names:
            self.handle(ev.FilesRemoved(floor.store, names, damaged=False))

    # ------------------------------------------------------------ catch-up

    def _catch_up(self, group: GroupId, epoch: Epoch, members: tuple[Worker, ...]) -> None:
        number = self._catch_ups[group] = self._catch_ups.get(group, 0) + 1
        waiting = [m.worker_id for m in members]

        def step() -> None:
            if self._catch_ups[group] != number:
                return
            if not waiting:
                self.handle(ev.CatchUpFinished(group, epoch))
                return
            other = self.cluster.sidecars[waiting[0]]
            if not other.up or other.machine.epoch(group) < epoch or self.world.chance(self.world.faults.break_link):
                self._later(0.2, step)
                return
            waiting.pop(0)
            self._pull(group, other)
            self._later(self.world.delay(), step)

        self._later(self.world.delay(), step)

    def _pull(self, group: GroupId, other: Sidecar) -> None:
        stores = {store for store, _ in other.disk.files if store.group == group}
        for store in sorted(stores):
            theirs = [entry for (s, _), entry in other.disk.files.items() if s == store]
            for entry in closure.wanted(self._catalogue.store(store), theirs, self.disk.floors.get(store)):
                self.store(entry)
                self.handle(ev.FileStored(entry, written=False))

    # ------------------------------------------------------------ executor

    def commit(self, request: int, entry: FileEntry, done: Callable[[ev.CompleteCommit], None]) -> None:
        """An executor of this worker hands over a changelog or zip; `done` gets the answer unless the process dies."""
        self.commits[request] = done
        self.store(entry)
        if entry.kind is FileKind.CHANGELOG and entry.version is not None:
            self.written[entry.store] = entry.version
        self.handle(ev.CommitRequested(request, entry, self.world.now + 5.0))

    def group(self, group: GroupId) -> ReplicaGroup | None:
        return self.machine.group(group)
