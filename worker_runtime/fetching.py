"""Fetches and loads that a task waits for go before catch-ups, which nobody waits for."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

LOOK_S = 0.02  # between two looks whether loads are done
PATIENCE_S = 10.0  # a catch-up goes on though there is always a load


class Turns:
    """Of one sidecar. A file that a catch-up has begun goes on; no further one begins while a Prepare fetches, or while
    a task loads what Prepare has found: after the loss of a worker both come at once, and the load is a batch's.
    """

    def __init__(self, loading: Callable[[], bool]) -> None:
        """`loading()`: whether a task loads state on this node."""
        self._loading = loading
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
        until = time.monotonic() + PATIENCE_S
        while self._loading() and time.monotonic() < until:
            await asyncio.sleep(LOOK_S)
            await self._free.wait()
