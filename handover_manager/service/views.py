"""When the core gets a fresh view of the cluster: soon after each change, but not for each of many changes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

PAUSE_S = 0.05  # between views
PAUSE_MAX_S = 0.1  # between views that take as long as that, as those of 100 000 virtual nodes may


class Views:
    """Calls `take` soon after `soon`. Changes between two views share the later one."""

    def __init__(self, take: Callable[[], None]) -> None:
        self._take = take
        self._loop = asyncio.get_running_loop()
        self._next_at = self._loop.time()
        self._timer: asyncio.TimerHandle | None = None

    def soon(self) -> None:
        """Something has changed: a view is due after the pause."""
        if self._timer is None:
            self._timer = self._loop.call_at(max(self._loop.time(), self._next_at), self._due)

    def take(self) -> None:
        """Takes a view at once."""
        self.cancel()
        begun = time.monotonic()
        try:
            self._take()
        finally:
            took_s = time.monotonic() - begun
            self._next_at = self._loop.time() + min(max(took_s, PAUSE_S), PAUSE_MAX_S)

    def cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None

    def _due(self) -> None:
        self._timer = None
        self.take()
