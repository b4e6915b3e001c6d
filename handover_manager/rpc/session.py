"""One driver's line: maps waiting to be sent, the newest per job."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from handover_manager.core.events import PushLocations


class DriverLine:
    """What is to be sent to a driver. A newer map of a job replaces one that has not been sent yet."""

    def __init__(self, number: int, application_id: str) -> None:
        self.number = number
        self.application_id = application_id
        self._waiting: dict[str, PushLocations] = {}
        self._news = asyncio.Event()
        self._closed = False

    def push(self, effect: PushLocations) -> None:
        self._waiting[effect.job] = effect
        self._news.set()

    def close(self) -> None:
        """The driver has ended its side: `pushes` ends."""
        self._closed = True
        self._news.set()

    async def pushes(self) -> AsyncIterator[PushLocations]:
        """Until `close`."""
        while not self._closed:
            await self._news.wait()
            self._news.clear()
            waiting, self._waiting = self._waiting, {}
            for effect in waiting.values():
                yield effect
