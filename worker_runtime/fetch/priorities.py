"""Gives fetches and loads that a task waits for priority over catch-ups."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

LOOK_S = 0.02  # interval between checks whether loads have finished
PATIENCE_S = 10.0  # a catch-up continues after so long even if there is always a load


class Turns:
    """The turns of one sidecar.

    A catch-up finishes a begun file. It begins no further file while a Prepare fetches, or while a task loads the files
    of a Prepare. After the loss of a worker, catch-up and load come at the same time, and a batch waits for the load.
    """

    def __init__(self, loading: Callable[[], bool]) -> None:
        """`loading()`: whether a task is loading state on this node."""
        self._loading = loading
        self._preparing = 0
        self._free = asyncio.Event()
        self._free.set()

    @contextmanager
    def prepare(self) -> Iterator[None]:
        """A Prepare fetches in this context."""
        self._preparing += 1
        self._free.clear()
        try:
            yield
        finally:
            self._preparing -= 1
            if not self._preparing:
                self._free.set()

    async def catch_up(self) -> None:
        """Returns when a catch-up may begin a file."""
        await self._free.wait()
        until = time.monotonic() + PATIENCE_S
        while self._loading() and time.monotonic() < until:
            await asyncio.sleep(LOOK_S)
            await self._free.wait()
