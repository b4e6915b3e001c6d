"""A model of an object store: conditional writes, errors, lost answers, late lists, and a clock of its own."""

from __future__ import annotations

import asyncio
import builtins
from collections import Counter
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Protocol, TypeVar

from rhino_archive.bucket import Bucket, Object
from rhino_core.errors import RhinoError, UnavailableError, UnknownError
from tests.simulation.archive.world import MINUTE_S, World

T = TypeVar("T")
URL = "/archive"
BEGINNING = datetime(2026, 1, 1, tzinfo=UTC)
IN_FLIGHT_S = MINUTE_S  # a request of a process that has died may arrive so much later


class Watch(Protocol):
    """Hears of every change, after it."""

    def put(self, name: str, data: bytes, by: Client) -> None: ...

    def deleted(self, name: str, by: Client) -> None: ...


@dataclass(frozen=True)
class Stored:
    """`listed_at`: lists have it from then on, in seconds of the world."""

    data: bytes
    changed: datetime
    listed_at: float


class Store:
    """`clock_off`: of its clock. `outage`: every request fails with it."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.objects: dict[str, Stored] = {}
        self._ghosts: dict[str, tuple[Stored, float]] = {}  # deleted, and in lists until then
        self.clock_off = timedelta()
        self.outage: type[RhinoError] | None = None
        self.watch: Watch | None = None

    def _late(self) -> float:
        late = self._world.chance(self._world.faults.late_list)
        return self._world.now + (self._world.random.uniform(0.0, 10 * MINUTE_S) if late else 0.0)

    def put(self, name: str, data: bytes, by: Client, *, create: bool = False) -> bool:
        former = self.objects.get(name)
        if create and former is not None:
            return False
        changed = BEGINNING + timedelta(seconds=self._world.now) + self.clock_off
        self._ghosts.pop(name, None)
        self.objects[name] = Stored(data, changed, former.listed_at if former is not None else self._late())
        if self.watch is not None:
            self.watch.put(name, data, by)
        return True

    def get(self, name: str) -> bytes:
        if name not in self.objects:
            raise UnknownError(f"archive {URL}: has no {name}")
        return self.objects[name].data

    def delete(self, name: str, by: Client) -> None:
        stored = self.objects.pop(name, None)
        if stored is None:
            return
        if stored.listed_at <= self._world.now:
            self._ghosts[name] = stored, self._late()
        if self.watch is not None:
            self.watch.deleted(name, by)

    def list(self, prefix: str, after: str) -> builtins.list[Object]:
        now = self._world.now
        shown = {name: stored for name, (stored, until) in self._ghosts.items() if until > now}
        shown |= {name: stored for name, stored in self.objects.items() if stored.listed_at <= now}
        return [
            Object(name, len(stored.data), stored.changed)
            for name, stored in sorted(shown.items())
            if name.startswith(prefix.rstrip("/") + "/") and name > after.rstrip("/")
        ]


class Client(Bucket):
    """The store as one process sees it. `awake`: not set while the process hangs. `cluster`: whose process it is.

    `began_at`: when this process decided to write a manifest.
    """

    def __init__(self, world: World, store: Store, cluster: str = "") -> None:  # without Bucket's: it opens a store
        self.url, self.is_folder = URL, False
        self.requests = Counter[str]()
        self.sent_bytes = self.received_bytes = 0
        self.cluster = cluster
        self.began_at = 0.0
        self.awake = asyncio.Event()
        self.awake.set()
        self._world = world
        self._of = store

    async def _request(self, effect: Callable[[], T], *, writes: bool = False) -> T:
        await self._pause(effect if writes else None)
        await self.awake.wait()
        if self._of.outage is not None:
            raise self._of.outage(f"archive {URL}: an outage")
        if self._world.chance(self._world.faults.fail_request):
            raise UnavailableError(f"archive {URL}: the request failed")
        result = effect()
        await self._pause(None)
        await self.awake.wait()
        if self._world.chance(self._world.faults.lose_answer):
            raise UnavailableError(f"archive {URL}: the answer was lost")
        return result

    async def _pause(self, effect: Callable[[], object] | None) -> None:
        """`effect` may still happen if the process dies meanwhile."""
        slow = self._world.chance(self._world.faults.slow_request)
        # Drawn now: tasks are cancelled in the order of a set.
        arrives, later_s = self._world.chance(0.5), self._world.random.uniform(0.0, IN_FLIGHT_S)
        try:
            await asyncio.sleep(self._world.random.uniform(1.0, MINUTE_S) if slow else self._world.delay())
        except asyncio.CancelledError:
            if effect is not None and arrives:
                self._world.loop.call_later(later_s, effect)
            raise

    async def put(self, name: str, data: bytes, *, create: bool = False) -> bool:
        done = await self._request(lambda: self._of.put(name, data, self, create=create), writes=True)
        # After a lost answer, the library writes again, and finds its own object.
        return done and not (create and self._world.chance(self._world.faults.lose_answer))

    async def get(self, name: str) -> bytes:
        return await self._request(lambda: self._of.get(name))

    async def get_range(self, name: str, offset: int, size_bytes: int) -> bytes:
        return await self._request(lambda: self._of.get(name)[offset : offset + size_bytes])

    async def list(self, prefix: str, after: str = "") -> AsyncIterator[Object]:
        for one in await self._request(lambda: self._of.list(prefix, after)):
            yield one

    async def delete(self, *names: str) -> None:
        def delete() -> None:
            for name in names:
                self._of.delete(name, self)

        if names:
            await self._request(delete, writes=True)
