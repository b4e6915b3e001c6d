"""Catch-up: a member pulls what it lacks above the floor (ARCHITECTURE.md, "Catch-up and anti-entropy").

Initial replication of Rhino 4.2.2 and anti-entropy are the same thing here: compare inventories, fetch the rest.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence

from rhino.errors import RhinoError
from rhino.ids import FileEntry, GroupId, StoreId, Worker
from worker_runtime.core import blocks
from worker_runtime.core import events as ev
from worker_runtime.core.closure import wanted
from worker_runtime.replication import Replication
from worker_runtime.rpc.peers import Found, Inventory, Peers
from worker_runtime.throttle import Throttle

log = logging.getLogger(__name__)
RETRY_S = (0.05, 2.0)  # first and longest pause before asking or fetching again
INVENTORIES_AT_ONCE = 16
PATIENCE_S = 10.0  # a member that is whole pulls what it lacks once nothing of it has come by itself for so long


class Puller:
    """All catch-ups of a sidecar; `CatchUp` of `Replication`."""

    def __init__(
        self, replication: Replication, peers: Peers, transfers: int, bytes_per_s: int, tasks: asyncio.TaskGroup
    ) -> None:
        self._replication = replication
        self._peers = peers
        self._tasks = tasks
        self._transfers = asyncio.Semaphore(transfers)
        self._inventories = asyncio.Semaphore(INVENTORIES_AT_ONCE)
        self._throttle = Throttle(bytes_per_s)
        self._running: dict[GroupId, asyncio.Task[None]] = {}

    def start(self, order: ev.StartCatchUp) -> None:
        """Replaces a catch-up of the same group; files that are here already stay."""
        if former := self._running.get(order.group):
            former.cancel()
        task = self._tasks.create_task(self._run(order), name=f"catch-up of {order.group}")
        self._running[order.group] = task
        task.add_done_callback(lambda done: self._ended(order.group, done))

    def _ended(self, group: GroupId, task: asyncio.Task[None]) -> None:
        if self._running.get(group) is task:
            del self._running[group]

    async def _run(self, order: ev.StartCatchUp) -> None:
        """Until everything is here, or this worker is no member any more."""
        started, pause = time.monotonic(), RETRY_S[0]
        while self._still_member(order.group):
            inventories = await self._ask_all(order)
            if inventories is not None:
                fetched = await self._pull_all(order, inventories)
                if fetched is not None:
                    self._report(order, fetched, time.monotonic() - started)
                    return
            await asyncio.sleep(pause)
            pause = min(pause * 2, RETRY_S[1])

    def _report(self, order: ev.StartCatchUp, fetched_bytes: int, duration_s: float) -> None:
        extra = {"group": str(order.group), "epoch": str(order.epoch), "fetched_bytes": fetched_bytes}
        level = logging.INFO if fetched_bytes else logging.DEBUG
        log.log(level, "caught up", extra={**extra, "duration_s": round(duration_s, 3)})
        self._replication.post(ev.CatchUpFinished(order.group, order.epoch))

    def _still_member(self, group: GroupId) -> bool:
        known = self._replication.group(group)
        return known is not None and known.member(self._replication.me.worker_id) is not None

    async def _ask_all(self, order: ev.StartCatchUp) -> list[Inventory] | None:
        """Inventories of all members, or None when one is missing or was given before the member saw the epoch."""
        answers = await asyncio.gather(*(self._ask(member, order) for member in order.members))
        complete = [inventory for inventory in answers if inventory is not None]
        return complete if len(complete) == len(answers) else None

    async def _ask(self, member: Worker, order: ev.StartCatchUp) -> Inventory | None:
        async with self._inventories:
            try:
                inventory = await self._peers.inventory(member, order.group)
            except RhinoError as error:
                log.debug("no inventory", extra={"peer": member.worker_id, "error": str(error)})
                return None
        return inventory if inventory.epoch >= order.epoch else None

    async def _pull_all(self, order: ev.StartCatchUp, inventories: list[Inventory]) -> int | None:
        """Pulls what is wanted, store by store; the bytes fetched, or None when something could not be had."""
        finds = self._finds(inventories)
        while order.whole and finds:  # chains push what is new, and to pull it as well would double the work
            await asyncio.sleep(PATIENCE_S)
            before, finds = finds, self._finds(inventories)
            if len(finds) == len(before):
                break
        results = await asyncio.gather(*(self._pull(found) for found in finds))
        fetched = [size for size in results if size is not None]
        return sum(fetched) if len(fetched) == len(results) else None

    def _finds(self, inventories: list[Inventory]) -> list[Found]:
        """What is wanted now, and who has it."""
        by_store: dict[StoreId, list[FileEntry]] = {}
        holders: dict[tuple[StoreId, str], list[Worker]] = {}
        for inventory in inventories:
            for entry in inventory.files:
                by_store.setdefault(entry.store, []).append(entry)
                holders.setdefault((entry.store, entry.name), []).append(inventory.worker)
        return [
            Found(entry, tuple(holders[entry.store, entry.name]))
            for store, entries in by_store.items()
            for entry in self._wanted(store, entries)
        ]

    def _wanted(self, store: StoreId, entries: list[FileEntry]) -> Sequence[FileEntry]:
        here, group = self._replication.store.catalogue.store(store), self._replication.group(store.group)
        if group is not None and blocks.is_spread(group):
            return blocks.lacking(self._replication.me, here, entries, group)
        return wanted(here, entries, self._replication.store.floor(store))

    async def _pull(self, found: Found) -> int | None:
        async with self._transfers:
            await self._peers.turns.catch_up()
            if not self._replication.store.twins(found.entry):
                await self._throttle.spend(found.entry.size_bytes)
            try:
                return await self._peers.pull(found)
            except RhinoError as error:
                log.warning("catch-up could not fetch a file", extra={"file": found.entry.name, "error": str(error)})
                return None
