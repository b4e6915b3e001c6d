"""An event loop whose time passes only when nothing else is to be done: days take seconds."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable
from typing import Any


class _NeverWaiting(selectors.SelectSelector):
    now = 0.0

    def select(self, timeout: float | None = None) -> list[Any]:
        if timeout is None:
            raise AssertionError("everything waits, and nothing will happen")
        self.now += max(timeout, 0.0)
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """Threads are not: their work is done at once."""

    def __init__(self) -> None:
        self._waiting = _NeverWaiting()
        super().__init__(self._waiting)

    def time(self) -> float:
        return self._waiting.now

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:  # type: ignore[override]
        future = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:
            future.set_exception(error)
        return future
