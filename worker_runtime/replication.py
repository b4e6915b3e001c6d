"""Runs the chain machine of one sidecar: feeds it events and carries out its effects."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from rhino.driver import DirectDriver
from rhino.ids import Epoch, FileEntry, GroupId, Lane, ReplicaGroup, StoreId, Worker
from worker_runtime.core import blocks
from worker_runtime.core import events as ev
from worker_runtime.core.chain import ChainMachine
from worker_runtime.core.upstreams import lane_of
from worker_runtime.precedence import Precedence
from worker_runtime.storage.store import Store

log = logging.getLogger(__name__)


class Links(Protocol):
    """Pushes to other workers (rpc/pusher.py)."""

    def connect(self, to: Worker, lane: Lane) -> None: ...
    def offer(self, offer: ev.OfferFile) -> None: ...
    def withdraw(self, to: str, store: StoreId, name: str, lane: Lane) -> None: ...


class Upstreams(Protocol):
    """Streams of pushes from other workers (rpc/receiver.py)."""

    def decide(self, transfer: int, *, accept: bool) -> None: ...
    def ack(self, ack: ev.SendAck) -> None: ...
    def refuse(self, refusal: ev.SendRefusal) -> None: ...


class CatchUp(Protocol):
    """Pulls what a member lacks (rpc/catch_up.py)."""

    def start(self, order: ev.StartCatchUp) -> None: ...


class Groups(Protocol):
    """The manager's side (rpc/manager.py)."""

    def ask(self, group: GroupId) -> None: ...
    def changed(self, group: GroupId) -> None: ...


@dataclass(frozen=True, slots=True)
class Copies:
    """The outcome of a commit: members that held the version, and the epoch under which they were counted."""

    copies: int
    epoch: Epoch


class Replication:
    """The machine, its driver and who waits for commits. `bind` completes it before `run`."""

    def __init__(self, me: Worker, store: Store) -> None:
        self.me = me
        self.store = store
        self.precedence = Precedence(lambda: store.pins.loading)
        self.machine = ChainMachine(me, store.catalogue, store.epochs(), store.fences())
        self._driver: DirectDriver[ev.Event, ev.Effect] = DirectDriver(self.machine, self._execute, ev.Tick)
        self._commits: dict[int, asyncio.Future[Copies]] = {}
        self._requests = itertools.count(1)
        self.observe: Callable[[ev.Event], None] = lambda event: None  # told of every event before it is handled
        self._links: Links
        self._upstreams: Upstreams
        self._catch_up: CatchUp
        self._groups: Groups

    def bind(self, links: Links, upstreams: Upstreams, catch_up: CatchUp, groups: Groups) -> None:
        self._links, self._upstreams, self._catch_up, self._groups = links, upstreams, catch_up, groups

    async def run(self) -> None:
        """Until cancelled; then nobody is left waiting."""
        try:
            await self._driver.run()
        finally:
            for waiting in self._commits.values():
                waiting.cancel()

    def post(self, event: ev.Event) -> None:
        if _of_a_commit(event):
            self.precedence.commit()
        if isinstance(event, ev.GroupAdopted):  # before the machine counts anybody's files
            self.store.promises.learn(event.group.group.job, event.group.settings.durability)
            if blocks.is_spread(event.group):
                self.store.spread(event.group.group.job)
        self.observe(event)
        self._driver.post(event)
        if isinstance(event, ev.FileStored | ev.CommitRequested):
            self._groups.changed(event.entry.store.group)
        elif isinstance(event, ev.FilesRemoved):
            self._groups.changed(event.store.group)

    def group(self, group: GroupId) -> ReplicaGroup | None:
        return self.machine.group(group)

    @property
    def waiting_commits(self) -> int:
        return len(self._commits)

    async def commit(self, entry: FileEntry, timeout_s: float) -> Copies:
        """Replicates a stored file; returns when enough members hold its version (Rhino 4.2.2, phase 2).

        Raises CopiesTimeoutError, AlreadyThereError.
        """
        loop = asyncio.get_running_loop()
        request = next(self._requests)
        answer: asyncio.Future[Copies] = loop.create_future()
        self._commits[request] = answer
        self.post(ev.CommitRequested(request, entry, loop.time() + timeout_s))
        try:
            return await answer  # the machine keeps the deadline
        finally:
            del self._commits[request]
            if answer.cancelled():
                self.post(ev.CommitAbandoned(request))

    async def drop_damaged(self, store: StoreId, names: Iterable[str]) -> None:
        """Files that are not what they were: out of the store, to be fetched again.

        With their hard links: otherwise each would be "repaired" from the other.
        """
        found = [record for name in names if (record := self.store.record(store, name)) is not None]
        linked = [twin for record in found for twin in self.store.hard_links(record.entry)]
        gone = tuple(dict.fromkeys(record.entry.name for record in (*found, *linked)))
        if gone:
            log.error("damaged files dropped, fetching them again", extra={"store": str(store), "files": list(gone)})
            await self.store.remove(store, gone)
            self.post(ev.FilesRemoved(store, gone, damaged=True))

    def _execute(self, effect: ev.Effect) -> None:
        match effect:
            case ev.PersistEpoch(group, epoch):
                self.store.put_epoch(group, epoch)
            case ev.AskForGroup(group):
                self._groups.ask(group)
            case ev.Connect(to, lane):
                self._links.connect(to, lane)
            case ev.OfferFile():
                self._links.offer(effect)
            case ev.WithdrawOffer(to_id, store, name, lane):
                self._links.withdraw(to_id, store, name, lane)
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
                self.store.make_visible(store, name)
            case ev.CompleteCommit():
                self._answer(effect)
            case ev.DropJob(job, fence, groups):
                files = self.store.drop_job(job, fence, groups)
                log.info("job forgotten", extra={"job": job, "fence": str(fence), "files": files})
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
