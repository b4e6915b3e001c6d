"""Deletes copies of groups that this worker has left, once their members have confirmed them (protocol/excess.py)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable

from rhino_core.errors import RhinoError
from rhino_core.ids import Epoch, GroupId, StoreId, Version, Worker
from rhino_core.runner import Driver
from worker_runtime.fetch.peers import Peers
from worker_runtime.protocol import events as ev
from worker_runtime.protocol import excess
from worker_runtime.replication import Replication

log = logging.getLogger(__name__)
GROUPS_AT_ONCE = 4  # groups whose members are asked at the same time


class ExcessCollector:
    """Runs the machine, and is its `Holdings`."""

    def __init__(self, replication: Replication, peers: Peers, grace_s: float, tasks: asyncio.TaskGroup) -> None:
        self._replication = replication
        self._store = replication.store
        self._peers = peers
        self._tasks = tasks
        self._asking = asyncio.Semaphore(GROUPS_AT_ONCE)
        self._machine = excess.ExcessMachine(replication.me, self._store.catalogue, self, grace_s)
        self._driver: Driver[excess.Event, excess.Effect] = Driver(self._machine, self._execute, ev.Tick)

    async def run(self) -> None:
        await self._driver.run()

    def saw(self, event: ev.Event) -> None:
        """Forward those events of the chain machine that this machine needs, too."""
        match event:
            case ev.GroupAdopted() | ev.GroupLeft() | ev.JobForgotten():
                self._driver.post(event)
            case ev.FileStored(entry=entry) | ev.CommitRequested(entry=entry):
                # Skips groups of which this worker is a member: they have many events.
                if self._machine.outside(entry.store.group):
                    self._driver.post(excess.GroupUsed(entry.store.group))

    # ------------------------------------------------------------ holdings

    def epoch(self, group: GroupId) -> Epoch:
        return self._replication.view.epoch(group)

    def floor(self, store: StoreId) -> Version | None:
        return self._store.retention.floor(store)

    def pinned(self, store: StoreId) -> Iterable[Version]:
        return self._store.pins.of(store)

    def in_use(self, store: StoreId) -> Iterable[str]:
        return self._replication.view.names_in_use(store, self.floor(store)) | self._store.retention.protected(store)

    # ------------------------------------------------------------ effects

    async def _execute(self, effect: excess.Effect) -> None:
        match effect:
            case excess.AskMembers(group):
                self._tasks.create_task(self._ask_all(effect), name=f"excess copies of {group}")
            case excess.RemoveExcess():
                await self._remove(effect)

    async def _ask_all(self, order: excess.AskMembers) -> None:
        async with self._asking:
            answers = await asyncio.gather(*(self._ask(member, order.group) for member in order.members))
        given = tuple(answer for answer in answers if answer is not None)
        self._driver.post(excess.MembersAnswered(order.group, order.epoch, given))

    async def _ask(self, member: Worker, group: GroupId) -> excess.Answer | None:
        try:
            inventory = await self._peers.inventory(member, group)
        except RhinoError as error:
            log.info("no answer about a copy in excess", extra={"peer": member.worker_id, "error": str(error)})
            return None
        return excess.Answer(inventory.worker, inventory.epoch, inventory.files)

    async def _remove(self, effect: excess.RemoveExcess) -> None:
        """Delete the files.

        Nothing else has run since the machine decided: the index changes first, before anything is awaited.
        """
        store = effect.store
        try:
            await self._store.removal.remove(store, effect.names)
            self._replication.post(ev.FilesRemoved(store, effect.names, damaged=False))
            extra = {"store": str(store), "epoch": str(effect.epoch), "files": len(effect.names)}
            log.info("copies in excess deleted: the group has its copies elsewhere", extra=extra)
        except RhinoError as error:  # the machine asks again later
            log.warning("cannot delete a copy in excess", extra={"store": str(store), "error": str(error)})
        self._driver.post(excess.ExcessRemoved(store.group, effect.epoch))
