"""Catch-up: a member pulls its missing files above the floor (ARCHITECTURE.md, "Catch-up and anti-entropy").

It serves both the initial replication of Rhino 4.2.2 and anti-entropy: compare inventories, then fetch the missing
files.
"""

from __future__ import annotations

import asyncio
import logging
import time

from rhino_core.errors import RhinoError
from rhino_core.ids import GroupId, Worker
from rhino_core.retry import CATCH_UP
from worker_runtime.fetch.peers import Peers
from worker_runtime.fetch.throttle import Throttle
from worker_runtime.protocol import events as ev
from worker_runtime.protocol.copies import pulling
from worker_runtime.protocol.copies.pulling import Found, Inventory
from worker_runtime.replication import Replication

log = logging.getLogger(__name__)
INVENTORIES_AT_ONCE = 16
PATIENCE_S = 10.0  # a whole member pulls missing files once none of them has arrived through the chain for so long


class Puller:
    """All catch-ups of a sidecar. `CatchUp` of `Replication`."""

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
        """Starts a catch-up in place of a running one of the same group. Files already here stay."""
        if former := self._running.get(order.group):
            former.cancel()
        task = self._tasks.create_task(self._run(order), name=f"catch-up of {order.group}")
        self._running[order.group] = task
        task.add_done_callback(lambda done: self._ended(order.group, done))

    def _ended(self, group: GroupId, task: asyncio.Task[None]) -> None:
        if self._running.get(group) is task:
            del self._running[group]

    async def _run(self, order: ev.StartCatchUp) -> None:
        """Runs until everything is here, or until this worker is no longer a member.

        A silent member delays the end, but not the files of the others.
        """
        started, pauses, fetched_bytes = time.monotonic(), CATCH_UP.pauses(), 0
        while self._still_member(order.group):
            inventories = await self._ask_all(order)
            fetched = await self._pull_all(order, inventories)
            fetched_bytes += fetched or 0
            if fetched is not None and len(inventories) == len(order.members):
                self._report(order, fetched_bytes, time.monotonic() - started)
                return
            await pauses.sleep()

    def _report(self, order: ev.StartCatchUp, fetched_bytes: int, duration_s: float) -> None:
        extra = {"group": str(order.group), "epoch": str(order.epoch), "fetched_bytes": fetched_bytes}
        level = logging.INFO if fetched_bytes else logging.DEBUG
        log.log(level, "caught up", extra={**extra, "duration_s": round(duration_s, 3)})
        self._replication.post(ev.CatchUpFinished(order.group, order.epoch))

    def _still_member(self, group: GroupId) -> bool:
        known = self._replication.group(group)
        return known is not None and known.member(self._replication.me.worker_id) is not None

    async def _ask_all(self, order: ev.StartCatchUp) -> list[Inventory]:
        answers = await asyncio.gather(*(self._ask(member, order) for member in order.members))
        return pulling.counted(order, answers)

    async def _ask(self, member: Worker, order: ev.StartCatchUp) -> Inventory | None:
        async with self._inventories:
            try:
                return await self._peers.inventory(member, order.group)
            except RhinoError as error:
                log.debug("no inventory", extra={"peer": member.worker_id, "error": str(error)})
                return None

    async def _pull_all(self, order: ev.StartCatchUp, inventories: list[Inventory]) -> int | None:
        """Pulls the missing files. Returns the bytes fetched, or None if some file could not be fetched.

        Retention may delete a pulled snapshot before its changelogs are here, so compare again at the end.
        """
        before, finds = None, self._finds(order, inventories)
        while pulling.left_to_the_chain(order, before, finds):
            await asyncio.sleep(PATIENCE_S)
            before, finds = finds, self._finds(order, inventories)
        fetched_bytes = 0
        while finds:
            results = await asyncio.gather(*(self._pull(found) for found in finds))
            if None in results:
                return None
            fetched_bytes += sum(size for size in results if size is not None)
            finds = self._finds(order, inventories)
        return fetched_bytes

    def _finds(self, order: ev.StartCatchUp, inventories: list[Inventory]) -> list[Found]:
        replication = self._replication
        store, group = replication.store, replication.group(order.group)
        return pulling.finds(inventories, store.catalogue, replication.me, group, store.retention.floor)

    async def _pull(self, found: Found) -> int | None:
        async with self._transfers:
            await self._peers.turns.catch_up()
            if not self._replication.store.files.twins(found.entry):
                await self._throttle.spend(found.entry.size_bytes)
            try:
                return await self._peers.pull(found)
            except RhinoError as error:
                log.warning("catch-up could not fetch a file", extra={"file": found.entry.name, "error": str(error)})
                return None
