"""What happens to the workers and the queries: restarts, crashes, replacements, handovers, status requests."""

from __future__ import annotations

import asyncio
import random
import signal
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any

from rhino import HandoverClient
from rhino.client.overview import fetch_overview
from rhino.client.query_record import forget_worker
from rhino_core.errors import RhinoError
from tests.soak.daemons import LASTING, WORKERS, Daemons
from tests.soak.query import Query, tolerating

QUERIES = 3  # that come and go, beside one that never ends
SAFE_TIMEOUT_S = 60.0
PAUSES_S = {"trouble": (1.0, 4.0), "replacement": (3.0, 8.0), "handover": (0.5, 2.0), "status": (0.2, 1.0)}


class Trouble:
    """`begin` starts all of it in a task group, until that is cancelled."""

    def __init__(self, daemons: Daemons, seed: int) -> None:
        self._daemons = daemons
        self._dice = random.Random(seed)
        self._client = HandoverClient(daemons.address)
        self.queries: dict[str, Query] = {}
        self.came = Counter[str]()

    def begin(self, tasks: asyncio.TaskGroup) -> None:
        tasks.create_task(self._query("lasting", 10**9))
        for slot in range(QUERIES):
            tasks.create_task(self._queries(slot))
        for what, act in {
            "trouble": self._restart,
            "replacement": self._replace,
            "handover": self._hand_over,
            "status": self._read_status,
        }.items():
            tasks.create_task(self._again(what, act))

    def close(self) -> None:
        self._client.close()

    async def _again(self, what: str, act: Callable[[], Coroutine[Any, Any, None]]) -> None:
        while True:
            await asyncio.sleep(self._dice.uniform(*PAUSES_S[what]))
            with tolerating(what, self.came):
                await act()

    # ------------------------------------------------------------ queries

    async def _query(self, job: str, batches: int) -> None:
        query = self.queries[job] = Query(self._daemons, job, self._dice.randint(2, 4), self._dice, self.came)
        try:
            await query.live(batches)
        finally:
            del self.queries[job]

    async def _queries(self, slot: int) -> None:
        number = 0
        while True:
            number += 1
            job = f"query-{slot}-{number}"
            await self._query(job, self._dice.randint(20, 100))
            await self._until_done(lambda job=job: self._client.forget_job(job, now=True))  # type: ignore[misc]
            self.came["queries forgotten"] += 1

    async def _until_done(self, act: Callable[[], object]) -> None:
        """Refused for a moment, while what ends has not ended for the manager."""
        async with asyncio.timeout(SAFE_TIMEOUT_S):
            while True:
                try:
                    await asyncio.to_thread(act)
                    return
                except RhinoError:
                    await asyncio.sleep(0.2)

    # ------------------------------------------------------------ workers

    async def _restart(self) -> None:
        victims = [name for name in self._daemons.steady() if name != LASTING]
        if len(self._daemons.steady()) < WORKERS or not victims:
            return
        victim = self._dice.choice(victims)
        self._daemons.changing.add(victim)
        try:
            number = self._dice.choice([signal.SIGTERM, signal.SIGKILL])
            await self._daemons.sidecars[victim].end(number)
            await self._daemons.sidecars[victim].start()
            self.came[f"sidecars restarted after {number.name}"] += 1
        finally:
            self._daemons.changing.discard(victim)

    async def _replace(self) -> None:
        """A worker comes; another one is emptied, stopped and forgotten."""
        victims = [name for name in self._daemons.steady() if name != LASTING]
        if len(self._daemons.steady()) < WORKERS or not victims:
            return
        victim = self._dice.choice(victims)
        self._daemons.changing.add(victim)
        await self._add_worker()
        await self._until_done(lambda: self._client.drain(victim))
        await asyncio.to_thread(self._client.wait_until_safe, victim, timeout_s=SAFE_TIMEOUT_S)
        await self._daemons.remove(victim)
        await self._until_done(lambda: forget_worker(self._daemons.address, victim, dry_run=False))
        self.came["workers replaced"] += 1

    async def _add_worker(self) -> None:
        new = self._daemons.new_worker()
        self._daemons.changing.add(new.settings.worker_id)
        await new.start()
        self._daemons.changing.discard(new.settings.worker_id)

    # ------------------------------------------------------------ people

    async def _hand_over(self) -> None:
        job = self._dice.choice(sorted(self.queries))
        node = f"0/{self._dice.randrange(self.queries[job].partitions)}"
        target = self._dice.choice(self._daemons.steady())
        handover = await asyncio.to_thread(self._client.start, job, [node], target, deadline_s=10.0)
        ended = await asyncio.to_thread(self._client.wait, handover.handover_id, timeout_s=20.0)
        self.came[f"handovers: {ended.phase.name}"] += 1

    async def _read_status(self) -> None:
        await asyncio.to_thread(fetch_overview, self._daemons.address)
        await asyncio.to_thread(self._client.list)
        job = self._dice.choice(sorted(self.queries))
        await asyncio.to_thread(self._client.explain, job, "0/0")
        self.came["reads of the status"] += 1
