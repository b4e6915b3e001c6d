"""Runs a protocol core on asyncio: feeds events, executes effects in order, wakes it at its deadlines."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from rhino.machine import Machine

EventT = TypeVar("EventT")
EffectT = TypeVar("EffectT")


class Driver(Generic[EventT, EffectT]):
    """One core, one queue: events are handled one at a time, each one's effects before the next event.

    `execute` carries out one effect; awaiting it delays the later ones (persist, then send). An effect whose
    result matters comes back as a new event through `post`. `tick` makes the event for a passed deadline.
    """

    def __init__(
        self,
        machine: Machine[EventT, EffectT],
        execute: Callable[[EffectT], Awaitable[None]],
        tick: Callable[[], EventT],
    ) -> None:
        self._machine = machine
        self._execute = execute
        self._tick = tick
        self._events: asyncio.Queue[EventT] = asyncio.Queue()

    def post(self, event: EventT) -> None:
        """Queues an event; never blocks. Call from the loop's thread only."""
        self._events.put_nowait(event)

    async def run(self) -> None:
        """Runs until cancelled; an exception of the core or of an effect ends it: run it in a TaskGroup."""
        loop = asyncio.get_running_loop()
        while True:
            event = await self._next(loop)
            for effect in self._machine.handle(event, now=loop.time()):
                await self._execute(effect)

    async def _next(self, loop: asyncio.AbstractEventLoop) -> EventT:
        if not self._events.empty():
            return self._events.get_nowait()
        deadline = self._machine.next_deadline()
        if deadline is None:
            return await self._events.get()
        try:
            async with asyncio.timeout_at(deadline):
                return await self._events.get()
        except TimeoutError:
            return self._tick()


class DirectDriver(Generic[EventT, EffectT]):
    """As `Driver`, for effects that never wait: an event is handled while it is posted, without a trip over the loop.

    An event that an effect posts is handled after all effects of the present one.
    """

    def __init__(
        self, machine: Machine[EventT, EffectT], execute: Callable[[EffectT], None], tick: Callable[[], EventT]
    ) -> None:
        self._machine = machine
        self._execute = execute
        self._tick = tick
        self._events: deque[EventT] = deque()
        self._handling = True  # nothing is handled before `run`, nor after it
        self._failed: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at: float | None = None
        self._arm_due = False

    def post(self, event: EventT) -> None:
        """Handles the event, with its effects, or queues it. Call from the loop's thread only; raises nothing."""
        self._events.append(event)
        if not self._handling:
            self._handle_all()

    async def run(self) -> None:
        """Until cancelled; an exception of the core or of an effect ends it: run it in a TaskGroup."""
        self._failed = asyncio.get_running_loop().create_future()
        self._handling = False
        self._handle_all()
        try:
            await self._failed
        finally:
            self._handling = True
            self._disarm()

    def _handle_all(self) -> None:
        loop = asyncio.get_running_loop()
        self._handling = True
        try:
            while self._events:
                for effect in self._machine.handle(self._events.popleft(), now=loop.time()):
                    self._execute(effect)
        except Exception as error:
            assert self._failed is not None
            self._failed.set_exception(error)  # and nothing is handled any more
            return
        self._handling = False
        if not self._arm_due:  # once for all that happens in one turn of the loop
            self._arm_due = True
            loop.call_soon(self._arm)

    def _arm(self) -> None:
        self._arm_due = False
        deadline = self._machine.next_deadline()
        if self._handling or deadline == self._timer_at:
            return
        self._disarm()
        if deadline is not None:
            self._timer_at = deadline
            self._timer = asyncio.get_running_loop().call_at(deadline, self._due)

    def _due(self) -> None:
        self._timer = self._timer_at = None
        self.post(self._tick())

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._timer_at = None
