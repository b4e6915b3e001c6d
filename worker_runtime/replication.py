"""Runs the chain machine of one sidecar: posts events to it and executes its effects."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from rhino_core.ids import Epoch, FileEntry, GroupId, Lane, ReplicaGroup, StoreId, Worker
from rhino_core.runner import Runner
from worker_runtime.precedence import Precedence
from worker_runtime.protocol import events as ev
from worker_runtime.protocol.chain.machine import ChainMachine
from worker_runtime.protocol.chain.view import ChainView
from worker_runtime.protocol.keys import lane_of
from worker_runtime.storage.store import Store

log = logging.getLogger(__name__)


class LinksPort(Protocol):
    """Pushes to other workers (push/links.py)."""

    def connect(self, to: Worker, lane: Lane) -> None: ...
    def offer(self, offer: ev.OfferFile) -> None: ...
    def withdraw(self, offer: ev.WithdrawOffer) -> None: ...


class UpstreamsPort(Protocol):
    """Streams of pushes from other workers (push/receiver.py)."""

    def decide(self, transfer: int, *, accept: bool) -> None: ...
    def ack(self, ack: ev.SendAck) -> None: ...
    def refuse(self, refusal: ev.SendRefusal) -> None: ...


class CatchUpPort(Protocol):
    """Pulls a member's missing files (fetch/catch_up.py)."""

    def start(self, order: ev.StartCatchUp) -> None: ...


class GroupsPort(Protocol):
    """The client of the manager (manager_link/client.py)."""

    def ask(self, group: GroupId) -> None: ...
    def ask_writer(self, group: GroupId, worker_id: str) -> None: ...
    def changed(self, group: GroupId) -> None: ...


@dataclass(frozen=True, slots=True)
class Copies:
    """The outcome of a commit: number of members that held the version, and the epoch of the count."""

    copies: int
    epoch: Epoch


class Replication:
    """The machine, its runner, and the callers of commits. `bind` completes it before `run`."""

    def __init__(self, me: Worker, store: Store) -> None:
        self.me = me
        self.store = store
        self.precedence = Precedence(lambda: store.pins.loading)
        index = store.index
        machine = ChainMachine(me, store.catalogue, index.epochs(), index.fences(), index.members())
        self.view: ChainView = machine.view
        self._runner: Runner[ev.Event, ev.Effect] = Runner(machine, self, ev.Tick)
        self._commits: dict[int, asyncio.Future[Copies]] = {}
        self._requests = itertools.count(1)
        self._observers: list[Callable[[ev.Event], None]] = []
        self._effect_observers: list[Callable[[ev.Effect], None]] = []
        self._links: LinksPort
        self._upstreams: UpstreamsPort
        self._catch_up: CatchUpPort
        self._groups: GroupsPort

    def subscribe(self, observer: Callable[[ev.Event], None]) -> None:
        """Calls `observer` with every event, before the machine handles it."""
        self._observers.append(observer)

    def subscribe_effects(self, observer: Callable[[ev.Effect], None]) -> None:
        """Calls `observer` with every effect, before it is carried out."""
        self._effect_observers.append(observer)

    def bind(self, links: LinksPort, upstreams: UpstreamsPort, catch_up: CatchUpPort, groups: GroupsPort) -> None:
        self._links, self._upstreams, self._catch_up, self._groups = links, upstreams, catch_up, groups

    async def run(self) -> None:
        """Runs until cancelled, then cancels all waiting commits."""
        try:
            await self._runner.run()
        finally:
            for waiting in self._commits.values():
                waiting.cancel()

    def post(self, event: ev.Event) -> None:
        if _of_a_commit(event):
            self.precedence.commit()
        if isinstance(event, ev.GroupAdopted):  # before the machine counts any copies
            self.store.durability.learn(event.group.group.job, event.group.settings.durability)
        for observer in self._observers:
            observer(event)
        self._runner.post(event)
        if isinstance(event, ev.FileStored | ev.CommitRequested):
            self._groups.changed(event.entry.store.group)
        elif isinstance(event, ev.FilesRemoved):
            self._groups.changed(event.store.group)

    def group(self, group: GroupId) -> ReplicaGroup | None:
        return self.view.group(group)

    @property
    def waiting_commits(self) -> int:
        return len(self._commits)

    async def commit(self, entry: FileEntry, patience_s: float) -> Copies:
        """Replicate a stored file. Return when enough members hold its version (Rhino 4.2.2, phase 2).

        It fails when nothing has moved for `patience_s`: as long as bytes move, it waits.
        Raises CopiesTimeoutError, AlreadyThereError, PreconditionError.
        """
        loop = asyncio.get_running_loop()
        request = next(self._requests)
        answer: asyncio.Future[Copies] = loop.create_future()
        self._commits[request] = answer
        self.post(ev.CommitRequested(request, entry, patience_s))
        try:
            return await answer  # the machine ends it when nothing moves
        finally:
            del self._commits[request]
            if answer.cancelled():
                self.post(ev.CommitAbandoned(request))

    async def drop_damaged(self, store: StoreId, names: Iterable[str]) -> None:
        """Removes changed or missing files from the store. They are fetched again.

        Their hard links are removed, too: otherwise each would be "repaired" from the other.
        """
        found = [record for name in names if (record := self.store.files.record(store, name)) is not None]
        linked = [twin for record in found for twin in self.store.files.hard_links(record.entry)]
        damaged: dict[StoreId, dict[str, None]] = {}
        for record in (*found, *linked):
            damaged.setdefault(record.entry.store, {})[record.entry.name] = None
        for place, gone in damaged.items():
            log.error("damaged files dropped, fetching them again", extra={"store": str(place), "files": list(gone)})
            await self.store.removal.remove(place, gone)
            self.post(ev.FilesRemoved(place, tuple(gone), damaged=True))

    # ------------------------------------------------------------ ports of the machine

    def persist(self, effects: Sequence[ev.Effect]) -> None:
        for effect in effects:
            if isinstance(effect, ev.PersistEpoch):
                self.store.index.put_epoch(effect.group, effect.epoch, effect.members)

    def publish(self, effect: ev.Effect) -> None:
        for observer in self._effect_observers:
            observer(effect)
        match effect:
            case ev.PersistEpoch():
                return  # persisted before
            case ev.AskForGroup(group):
                self._groups.ask(group)
            case ev.AskForWriter(group, worker_id):
                self._groups.ask_writer(group, worker_id)
            case ev.Connect(to, lane):
                self._links.connect(to, lane)
            case ev.OfferFile():
                self._links.offer(effect)
            case ev.WithdrawOffer():
                self._links.withdraw(effect)
            case ev.ReceiveFile(transfer):
                self._upstreams.decide(transfer, accept=True)
            case ev.DiscardTransfer(transfer):
                self._upstreams.decide(transfer, accept=False)
            case ev.SendAck():
                self._upstreams.ack(effect)
                self._groups.changed(effect.store.group)
            case ev.SendRefusal():
                self._upstreams.refuse(effect)
            case ev.StartCatchUp():
                self._catch_up.start(effect)
            case ev.MakeVisible(store, name):
                self.store.files.set_visible(store, name, visible=True)
            case ev.CompleteCommit():
                self._answer(effect)
            case ev.DropJob(job, fence, groups):
                files = self.store.removal.drop_job(job, fence, groups)
                log.info("job forgotten", extra={"job": job, "fence": str(fence), "files": files})
            case ev.DropFile(store, name):
                self.store.removal.drop_file(store, name)
                self.post(ev.FilesRemoved(store, (name,), damaged=False))
            case ev.ReportGroup(group):
                self._groups.changed(group)

    def _answer(self, effect: ev.CompleteCommit) -> None:
        waiting = self._commits.get(effect.request)
        if waiting is None or waiting.done():
            return
        if effect.error is not None:
            waiting.set_exception(effect.error)
        else:
            waiting.set_result(Copies(effect.copies, effect.epoch))


def _of_a_commit(event: ev.Event) -> bool:
    match event:
        case ev.CommitRequested():
            return True
        case ev.BeginReceived(entry=entry):
            return entry.lane is Lane.COMMIT
        case ev.AckReceived(name=name):
            return lane_of(name) is Lane.COMMIT
        case _:
            return False
