"""A simulated sidecar: the real ChainMachine over a disk that survives crashes and memory that does not."""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from rhino_core.errors import NoSpaceError
from rhino_core.ids import (
    NO_EPOCH,
    Epoch,
    FileEntry,
    FileKind,
    GroupId,
    Lane,
    ReplicaGroup,
    StoreId,
    StoreVersion,
    Version,
    Worker,
)
from tests.simulation.brief import brief
from tests.simulation.catch_up import CatchUp
from tests.simulation.disk import Disk, Key
from tests.simulation.excess import Excess
from tests.simulation.facts import Incarnation
from tests.simulation.retention import Retention
from tests.simulation.streams import WINDOW_BYTES, Stream
from tests.simulation.watches import Watch
from worker_runtime.protocol import events as ev
from worker_runtime.protocol.chain import machine as chain_core
from worker_runtime.protocol.copies.pulling import Found
from worker_runtime.protocol.credit import GrantPool
from worker_runtime.protocol.versions import closure
from worker_runtime.storage.index.arrivals import Arrivals

if TYPE_CHECKING:
    from tests.simulation.cluster import Cluster

BEAT_S = 0.5
CHECK_EVERY = 3  # events, between looks at what the machine knows of itself
COMMIT_S = 3.0  # an executor waits this long
ZIP_COMMIT_S = 5.0  # and for a snapshot longer, since no task waits for it
Done = Callable[[ev.CompleteCommit], None]


class Upstream(Protocol):
    """The receiving end of a stream of files."""

    def accept(self, transfer: int, entry: FileEntry) -> None: ...


class Sidecar:
    """One worker. `process` numbers its processes: actions of an earlier one do nothing."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        self.cluster = cluster
        self.world = cluster.world
        self.name = name
        self.up = False
        self.process = 0
        self.disk = Disk()
        self._booted_at = 0.0
        self.wall_offset_s = 0.0  # of its wall clock, which somebody may set
        self.commits: dict[int, tuple[FileEntry, Done]] = {}
        self.inbound: dict[int, Stream] = {}
        self.grants = GrantPool(cluster.limit_bytes, WINDOW_BYTES)
        self._handled = 0
        self._events: deque[ev.Event] = deque()

    # ------------------------------------------------------------ incarnation

    @property
    def worker(self) -> Worker:
        return _worker(self.name, self.disk.incarnation, self.process, zones=self.cluster.variety.zones)

    @property
    def incarnation(self) -> Incarnation:
        return self.name, self.worker.incarnation

    def monotonic_ns(self) -> int:
        """The monotonic time of the machine, since its boot."""
        return round((self.world.now - self._booted_at) * 1e9)

    def wall_ns(self) -> int:
        return round((self.world.now + self.wall_offset_s) * 1e9)

    def start(self) -> None:
        if self.cluster.sidecars.get(self.name) is not self:
            return  # gone for good
        self.up = True
        self.process += 1
        self.disk.failing = False
        self.written: dict[StoreId, Version] = {}
        self.damaged: set[Key] = set()
        self.pins: dict[int, StoreVersion] = {}
        self.named: set[str] = set()  # jobs whose executors have spoken to this process
        self.watch: Watch | None = None
        self.live: tuple[Worker, ...] = ()  # as the manager said last
        self.absent: tuple[Worker, ...] = ()
        self.settled_at = 0.0
        self.catalogue = closure.Catalogue()
        for store, version in sorted(self.disk.first_snapshots):
            self.catalogue.had_snapshot(store, version)
        arrived_ns = self.disk.arrived_ns
        for store, name in sorted(arrived_ns, key=lambda key: arrived_ns[key]):
            self.catalogue.add(self.disk.files[store][name], arrived_ns[store, name] / 1e9)
        self.arrivals = Arrivals(max(arrived_ns.values(), default=0), clock=self.monotonic_ns)
        self.grants = GrantPool(self.cluster.limit_bytes, WINDOW_BYTES)
        disk = self.disk
        self.machine = chain_core.ChainMachine(self.worker, self.catalogue, disk.epochs, disk.fences, disk.members)
        self.excess = Excess(self)
        self._catch_ups: dict[GroupId, CatchUp] = {}
        self._undecided: dict[int, Upstream] = {}
        self._armed: float | None = None
        self.world.say(f"{self.name} starts")
        self.later(0.01, self.register)
        self.later(BEAT_S, self._beat)
        self.retention = Retention(self)

    def crash(self, *, lose_disk: bool = False, lose_power: bool = False) -> None:
        loss = " and loses its disk" if lose_disk else " and loses power" if lose_power else ""
        self.world.say(f"{self.name} crashes{loss}")
        self.up = False
        self.process += 1
        self.commits.clear()
        self._events.clear()
        self.cluster.network.break_streams(self.name)
        self.cluster.manager.unwatched_by(self)
        if lose_disk:
            self.cluster.checkers.lost(self.incarnation)
            self.disk = Disk(self.disk.uuid + 1)
        if lose_power:
            self._lose_power()

    def _lose_power(self) -> None:
        before, synced = self.incarnation, self.cluster.synced
        if not synced:
            self.cluster.checkers.lost(before)
        self.disk.lose_power(self.world.now, self.world.random, synced=synced)
        self._booted_at = self.world.now
        if synced:
            self.cluster.checkers.reborn(before, self.incarnation)

    def later(self, delay_s: float, action: Callable[[], object]) -> None:
        """Runs `action` unless this process has ended by then."""
        self.at(self.world.now + delay_s, action)

    def at(self, time: float, action: Callable[[], object]) -> None:
        process = self.process

        def run() -> None:
            if self.up and self.process == process:
                action()

        self.world.at(time, run)

    # ------------------------------------------------------------ manager

    def _resolve(self, group: GroupId) -> None:
        """As ManagerClient.ask: a group that no executor here has named comes from a peer."""
        if self.machine.view.forgotten(group):
            return
        existing_only = self.group(group) is None and group.job not in self.named
        if not self.cluster.manager.resolve(self, group, existing_only=existing_only):
            self.later(0.3, lambda: self._resolve(group))

    def register(self) -> None:
        """At the start, and whenever the manager can be reached again."""
        if not self.cluster.manager.register(self):
            self.later(0.3, self.register)

    def _beat(self) -> None:
        if not self.world.chance(self.world.faults.drop_beat) and not self.cluster.manager.beat(self):
            self.register()
        self.later(BEAT_S, self._beat)

    # ------------------------------------------------------------ core

    def handle(self, event: ev.Event) -> None:
        """One event after the other, each with all its effects; a crash may come between two effects."""
        if not self.up:
            return
        self._events.append(event)
        if len(self._events) > 1:
            return  # an effect has led to this event
        process = self.process
        while self.up and self.process == process and self._events:
            self._handle_one(self._events[0], process)
            if self._events:
                self._events.popleft()
        if self.up and self.process == process:
            self._arm()

    def _handle_one(self, event: ev.Event, process: int) -> None:
        if self.world.verbose and not isinstance(event, ev.Tick):
            self.world.say(f"  {self.name} <- {brief(event)}")
        self._check(event)
        self.excess.observe(event)
        for effect in self.machine.handle(event, now=self.world.now):
            if self.world.verbose:
                self.world.say(f"  {self.name} -> {brief(effect)}")
            if self.world.chance(self.world.faults.crash_between_effects):
                self.cluster.crash(self)
            if not self.up or self.process != process:
                return
            self._execute(effect)
        self._handled += 1
        if (
            len(self._events) == 1 and self._handled % CHECK_EVERY == 0
        ):  # else the machine does not know yet of all that has happened to its disk
            self.machine.check_invariants()

    def _check(self, event: ev.Event) -> None:
        """Shows the event to the checkers before it is handled."""
        checkers, process = self.cluster.checkers.catch_ups, (self.name, self.process)
        if isinstance(event, ev.GroupAdopted):
            checkers.adopted(process, event.group, self.disk.epoch(event.group.group))
        elif isinstance(event, ev.GroupLeft):
            checkers.left(process, event.group)
        elif isinstance(event, ev.CatchUpFinished):
            self.cluster.checkers.caught_up(process, event.group, self.disk)
        elif isinstance(event, ev.FilesRemoved) and event.damaged:
            checkers.damaged(process, event.store.group)

    def _arm(self) -> None:
        """A Tick when the machine asks for one, and not otherwise."""
        due = self.machine.next_deadline()
        if due is not None and due != self._armed:
            self._armed = due
            self.at(due, lambda: self._tick(due))

    def _tick(self, due: float) -> None:
        if self._armed == due:
            self._armed = None
            self.handle(ev.Tick())

    def _execute(self, effect: ev.Effect) -> None:
        match effect:
            case ev.PersistEpoch(group, epoch, members):
                self.cluster.checkers.epoch_persisted(self.disk, group, epoch)
                self.disk.put_epoch(group, epoch, members, self.world.now)
            case ev.AskForGroup(group):
                self.later(self.world.delay(), lambda: self._resolve(group))
            case ev.AskForWriter(group, writer):
                self.later(self.world.delay(), lambda: self.cluster.manager.may_write(self, group, writer))
            case ev.StartCatchUp(group):
                self._catch_ups[group] = CatchUp(self, effect)
            case ev.MakeVisible(store, name):
                self.disk.visible.add((store, name))
                self.cluster.checkers.visible(self.disk, store, name)
            case ev.CompleteCommit(request):
                self._answer(request, effect)
            case ev.ReportGroup(_):
                self.later(0.01, lambda: self.cluster.manager.beat(self))
            case ev.ReceiveFile(transfer, entry):
                if (stream := self._undecided.pop(transfer, None)) is not None:
                    stream.accept(transfer, entry)
            case ev.DiscardTransfer(transfer):
                self._undecided.pop(transfer, None)  # what is not accepted is thrown away
            case ev.DropJob(job, fence, groups):
                self._drop_job(job, fence, groups)
            case ev.DropFile(store, name):
                self.remove(store, (name,), damaged=False)
            case _:
                self._execute_push(effect)

    def _drop_job(self, job: str, fence: Epoch, groups: Sequence[GroupId]) -> None:
        self.disk.drop_job(job, fence, groups)
        self.written = {store: version for store, version in self.written.items() if store.group not in groups}
        self._catch_ups = {group: running for group, running in self._catch_ups.items() if group not in groups}
        for group in groups:
            self.catalogue.forget(group)

    def _execute_push(self, effect: ev.Effect) -> None:
        match effect:
            case ev.Connect(to, lane):
                self._connect(to.worker_id, lane)
            case ev.OfferFile(to):
                if stream := self.cluster.network.stream(self.name, to.worker_id, effect.lane):
                    stream.offer(effect)
            case ev.WithdrawOffer(to, store, name, lane):
                if stream := self.cluster.network.stream(self.name, to, lane):
                    stream.withdraw((store, name))
            case ev.SendAck() | ev.SendRefusal():
                self._reply(effect)
            case _:
                raise NotImplementedError(f"effect {effect}")

    def _answer(self, request: int, answer: ev.CompleteCommit) -> None:
        waiting = self.commits.pop(request, None)
        if waiting is None:
            return
        entry, done = waiting
        if answer.error is None:
            while not self.cluster.checkers.committed(entry, answer, self.incarnation, self.disk):
                self.cluster.spare(entry.store)
        done(answer)

    # ------------------------------------------------------------ network

    def _connect(self, to: str, lane: Lane) -> None:
        def attempt() -> None:
            network = self.cluster.network
            if to not in self.cluster.sidecars:
                return  # gone for good: links to such workers end
            if network.stream(self.name, to, lane) is None and not network.open_stream(self.name, to, lane):
                self.later(0.3, attempt)

        self.later(self.world.delay(), attempt)

    def disconnected(self, from_: str, lane: Lane) -> None:
        """The real link reconnects by itself."""
        if self.up:
            self.handle(ev.PeerDisconnected(from_, lane))
            if self.up:
                self._connect(from_, lane)

    def begin(self, begin: ev.BeginReceived, stream: Upstream) -> None:
        self._undecided[begin.transfer] = stream
        self.handle(begin)

    def stream_ended(self, stream: Upstream) -> None:
        """Its undecided transfers are forgotten."""
        for transfer in [transfer for transfer, of in self._undecided.items() if of is stream]:
            del self._undecided[transfer]
            self.handle(ev.TransferFailed(transfer, None))

    def _reply(self, reply: ev.SendAck | ev.SendRefusal) -> None:
        event: ev.AckReceived | ev.RefusalReceived
        if isinstance(reply, ev.SendAck):
            self.cluster.checkers.acknowledged(reply, self.incarnation, self.disk)
            event = ev.AckReceived(self.name, reply.store, reply.name, reply.epoch, reply.member, reply.holds)
        else:
            event = ev.RefusalReceived(
                self.name, reply.store, reply.name, reply.reason, reply.current_epoch, reply.message, reply.member
            )
        if stream := self.cluster.network.stream(reply.upstream, self.name, reply.lane):
            stream.reply(event)

    def top_up_starved(self) -> None:
        for grant in self.grants.starved():
            self.inbound[grant].give(self.grants.top_up(grant))

    # ------------------------------------------------------------ disk

    def store(self, entry: FileEntry) -> None:
        """The bytes are on disk, in the index and in the catalogue: all of it before any event about them."""
        self.cluster.checkers.stored(entry, self.incarnation)
        arrived_ns = self.arrivals.now_ns()
        self.disk.put(entry, self.world.now, arrived_ns)
        self.catalogue.add(entry, arrived_ns / 1e9)

    def readable(self, store: StoreId, name: str) -> bool:
        """Whether the file is here; reading it to the end shows whether it is damaged, and then it goes.

        A read for an offer goes on beside the other effects of the same event, so it ends after them.
        """
        if (store, name) in self.disk.rotten:
            if self._events:
                self.later(0.0, lambda: self.readable(store, name))
                return False
            self.world.say(f"{self.name} finds {store}/{name} damaged")
            self.remove(store, (name,), damaged=True)
        return name in self.disk.files[store]

    def inventory(self, group: GroupId) -> tuple[FileEntry, ...]:
        """The files that other workers learn of: all that retention keeps."""
        return tuple(
            entry
            for store, catalogue in self.catalogue.stores(group).items()
            for kept in [closure.kept_names(catalogue, self.disk.floors.get(store))]
            for entry in catalogue.entries()
            if entry.name in kept
        )

    def pull_from(self, found: Found) -> bool:
        """From the first holder that gives it."""
        entry = found.entry
        for holder in found.holders:
            other = self.cluster.network.reach(self.name, holder.worker_id)
            if other is not None and other.readable(entry.store, entry.name):
                return self.pull(entry)
        return False

    def pull(self, entry: FileEntry) -> bool:
        """A file that was fetched from another worker; False when it could not be stored."""
        if entry.name not in self.disk.files[entry.store]:
            if not self.disk.takes_files:
                return False
            self.store(entry)
            self.handle(ev.FileStored(entry, written=False))
        return self.up

    def check_bytes(self) -> None:
        """Reads everything, as a power cycle does."""
        for store, name in sorted(self.disk.rotten):
            if self.up:
                self.readable(store, name)

    def remove(self, store: StoreId, names: tuple[str, ...], *, damaged: bool) -> None:
        if damaged:
            self.damaged |= {(store, name) for name in names}
            self.cluster.checkers.losses += 1
        for name in names:
            self.disk.drop(store, name)
            self.catalogue.discard(store, name)
        if damaged and not any(rotten == store for rotten, _ in self.disk.rotten):
            self.cluster.checkers.sound(self.incarnation, store)
        self.cluster.checkers.snapshots_whole(self.disk, store)
        self.cluster.checkers.durable(self.cluster.disks().values(), store)
        self.handle(ev.FilesRemoved(store, names, damaged=damaged))

    # ------------------------------------------------------------ executor

    def commit(self, request: int, entry: FileEntry, done: Done) -> None:
        """An executor of this worker hands over a changelog or zip; `done` gets the answer unless the process dies."""
        self.commits[request] = entry, done
        self.named.add(entry.store.job)
        if entry.name not in self.disk.files[entry.store]:
            if not self.disk.takes_files:
                error = NoSpaceError(f"{entry.name}: disk {self.disk.state.value}")
                self._answer(request, ev.CompleteCommit(request, 0, NO_EPOCH, error))
                return
            self.store(entry)
        if entry.kind is FileKind.CHANGELOG and entry.version is not None:
            self.written[entry.store] = entry.version
        wait_s = ZIP_COMMIT_S if entry.kind is FileKind.SNAPSHOT else COMMIT_S
        self.handle(ev.CommitRequested(request, entry, wait_s))

    def abandon(self, request: int) -> None:
        self.commits.pop(request, None)
        self.handle(ev.CommitAbandoned(request))

    def group(self, group: GroupId) -> ReplicaGroup | None:
        return self.machine.view.group(group)

    def catching_up(self, catch_up: CatchUp) -> bool:
        """Whether this is the newest catch-up of its group."""
        return self._catch_ups.get(catch_up.order.group) is catch_up


@functools.lru_cache(maxsize=1 << 8)
def _worker(name: str, incarnation: str, process: int, *, zones: bool) -> Worker:
    zone = f"zone-{sum(map(ord, name)) % 2}" if zones else ""
    return Worker(name, f"{name}/{incarnation}", name, f"{name}:{process}", zone)
