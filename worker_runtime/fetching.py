"""Fetches that a task waits for go before those of catch-ups, which nobody waits for."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager


class Turns:
    """Of one sidecar. A file that a catch-up has begun goes on; no further one begins while a Prepare fetches."""

    def __init__(self) -> None:
        self._preparing = 0
        self._free = asyncio.Event()
        self._free.set()

    @contextmanager
    def prepare(self) -> Iterator[None]:
        """While a Prepare fetches."""
        self._preparing += 1
        self._free.clear()
        try:
            yield
        finally:
            self._preparing -= 1
            if not self._preparing:
                self._free.set()

    async def catch_up(self) -> None:
        """Returns when it is a catch-up's turn."""
        await self._free.wait()
