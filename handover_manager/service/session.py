"""Sessions of drivers, with the effects to be sent: of each job the newest map, and the newest lost workers."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Iterable

from handover_manager.events import DriverEffect, NameLost, PushLocations
from rhino_pb import handover_pb2 as pb


class Session:
    """A driver's session. A newer map of a job replaces an unsent one.

    `token` is known to this driver only. `replaced`: the driver has a newer session, so this one must end.
    """

    def __init__(self, number: int, hello: pb.DriverHello, token: str, principal: str = "") -> None:
        """`principal`: the name in the driver's certificate, empty without one."""
        self.principal = principal
        self.number = number
        self.hello = hello
        self.token = token
        self.replaced = False
        self._waiting: dict[object, DriverEffect] = {}
        self._ready = asyncio.Event()
        self._closed = False

    def send(self, effect: DriverEffect) -> None:
        match effect:
            case PushLocations(job=job):
                self._waiting[job] = effect
            case NameLost():
                self._waiting[NameLost] = effect
            case _:
                self._waiting[effect] = effect
        self._ready.set()

    def close(self) -> None:
        """Ends `effects`: the driver has closed its side."""
        self._closed = True
        self._ready.set()

    async def effects(self) -> AsyncIterator[DriverEffect]:
        """Yields effects until `close`."""
        while not self._closed:
            await self._ready.wait()
            self._ready.clear()
            waiting, self._waiting = self._waiting, {}
            for effect in waiting.values():
                yield effect


class Sessions:
    """The open sessions, by number."""

    def __init__(self) -> None:
        self._open: dict[int, Session] = {}
        self._lost: tuple[str, ...] = ()

    def lost(self, workers: Iterable[str]) -> None:
        """These workers are lost, and no others: every driver hears of changes."""
        lost = tuple(sorted(workers))
        if lost != self._lost:
            self._lost = lost
            for session in self._open.values():
                session.send(NameLost(session.number, lost))

    def send(self, effect: DriverEffect) -> None:
        """Sends to the session of the effect, if it is still open."""
        if effect.session in self._open:
            self._open[effect.session].send(effect)

    def open(self, session: Session) -> list[Session]:
        """Adds the session. Closes and returns the former sessions of the same driver."""
        former = session.hello.former_token
        replaced = [seen for seen in self._open.values() if former and seen.token == former]
        for older in replaced:
            older.replaced = True
            older.close()
        self._open[session.number] = session
        if self._lost:
            session.send(NameLost(session.number, self._lost))
        return replaced

    def ended(self, session: Session) -> None:
        del self._open[session.number]


AT_ONCE = 200
EVERY_S = 5.0  # for each further one
CALLERS_MAX = 1000


class Pace:
    """By caller. If there is no room for another one, the caller silent for the longest time is forgotten."""

    def __init__(self) -> None:
        self._even_at: OrderedDict[str, float] = OrderedDict()  # when the caller may again name AT_ONCE

    def wait_s(self, caller: str, now: float) -> float:
        """The caller's waiting time for one more query, in seconds. The query counts from this call on."""
        even_at = max(self._even_at.pop(caller, now), now) + EVERY_S
        self._even_at[caller] = even_at
        if len(self._even_at) > CALLERS_MAX:
            self._even_at.popitem(last=False)
        return max(even_at - now - AT_ONCE * EVERY_S, 0.0)
