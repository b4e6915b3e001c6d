"""Runs a protocol core on asyncio: feeds events, executes effects in order, wakes it at its deadlines."""

from __future__ import annotations

import asyncio
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
