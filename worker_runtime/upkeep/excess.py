"""Deletes copies of groups left by this worker, once their members have confirmed them (protocol/copies/excess.py)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence
from pathlib import Path

from rhino_core.errors import RhinoError
from rhino_core.ids import Epoch, GroupId, StoreId, Version, Worker
from rhino_core.runner import Runner
from worker_runtime.fetch.peers import Peers
from worker_runtime.protocol import events as ev
from worker_runtime.protocol.copies import excess
from worker_runtime.protocol.copies.pulling import Inventory
from worker_runtime.replication import Replication

log = logging.getLogger(__name__)
GROUPS_AT_ONCE = 4  # groups whose members are asked at the same time


class ExcessCollector:
    """Runs the machine, and is its `Holdings` and its `Ports`."""

    def __init__(self, replication: Replication, peers: Peers, grace_s: float, tasks: asyncio.TaskGroup) -> None:
        self._replication = replication
        self._store = replication.store
        self._peers = peers
        self._tasks = tasks
        self._asking = asyncio.Semaphore(GROUPS_AT_ONCE)
        self._machine = excess.ExcessMachine(replication.me, self._store.catalogue, self, grace_s)
        self._runner: Runner[excess.Event, excess.Effect] = Runner(self._machine, self, ev.Tick)
        replication.subscribe(self._observe)

    async def run(self) -> None:
        await self._runner.run()

    def _observe(self, event: ev.Event) -> None:
        """Forwards events of the chain machine to this machine, if it needs them."""
        match event:
            case ev.GroupAdopted() | ev.GroupLeft() | ev.JobForgotten():
                self._runner.post(event)
            case ev.FileStored(entry=entry) | ev.CommitRequested(entry=entry):
                # Skips groups of which this worker is a member: they have many events.
                if self._machine.outside(entry.store.group):
                    self._runner.post(excess.GroupUsed(entry.store.group))

    # ------------------------------------------------------------ holdings

    def epoch(self, group: GroupId) -> Epoch:
        return self._replication.view.epoch(group)

    def floor(self, store: StoreId) -> Version | None:
        return self._store.retention.floor(store)

    def pinned(self, store: StoreId) -> Iterable[Version]:
        return self._store.pins.of(store)

    def in_use(self, store: StoreId) -> Iterable[str]:
        return self._replication.view.names_in_use(store, self.floor(store)) | self._store.retention.protected(store)

    # ------------------------------------------------------------ ports of the machine

    def persist(self, effects: Sequence[excess.Effect]) -> None:
        """The machine has no records of its own: after a restart, it asks the members again."""

    def publish(self, effect: excess.Effect) -> None:
        match effect:
            case excess.AskMembers(group):
                self._tasks.create_task(self._ask_all(effect), name=f"excess copies of {group}")
            case excess.RemoveExcess():
                self._remove(effect)

    def _remove(self, effect: excess.RemoveExcess) -> None:
        """Takes the files out of the count at once: nothing else has run since the machine decided. Deletes them."""
        try:
            trashed = self._store.removal.take_out(effect.store, effect.names)
        except RhinoError as error:  # the machine asks again later
            _log_failure(effect, error)
            self._runner.post(excess.ExcessRemoved(effect.store.group, effect.epoch))
            return
        self._replication.post(ev.FilesRemoved(effect.store, effect.names, damaged=False))
        self._tasks.create_task(self._delete(effect, trashed), name=f"excess files of {effect.store}")

    async def _delete(self, effect: excess.RemoveExcess, trashed: list[Path]) -> None:
        await self._store.removal.delete(trashed)
        extra = {"store": str(effect.store), "epoch": str(effect.epoch), "files": len(effect.names)}
        log.info("copies in excess deleted: the group has its copies elsewhere", extra=extra)
        self._runner.post(excess.ExcessRemoved(effect.store.group, effect.epoch))

    async def _ask_all(self, order: excess.AskMembers) -> None:
        async with self._asking:
            answers = await asyncio.gather(*(self._ask(member, order.group) for member in order.members))
        given = tuple(answer for answer in answers if answer is not None)
        self._runner.post(excess.MembersAnswered(order.group, order.epoch, given))

    async def _ask(self, member: Worker, group: GroupId) -> Inventory | None:
        try:
            return await self._peers.inventory(member, group)
        except RhinoError as error:
            log.info("no answer about a copy in excess", extra={"peer": member.worker_id, "error": str(error)})
            return None


def _log_failure(effect: excess.RemoveExcess, error: RhinoError) -> None:
    log.warning("cannot delete a copy in excess", extra={"store": str(effect.store), "error": str(error)})
