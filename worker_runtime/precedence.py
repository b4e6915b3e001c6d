"""Gives commits and loads precedence: while any are under way, data files are sent slowly.

The lanes have their own connections and credit, but share the processors. On a busy node every step of a commit would
wait behind chunks of the bulk lane. So the bulk lane yields on every worker of a chain, and continues as soon as
commits are done. It also yields to the load of a task, because a batch waits for it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

QUIET_S = 0.005  # quiet time after the last step of a commit before data files may use the whole node again
TRICKLE_S = 0.010  # meanwhile a link sends one chunk in this time, so that data files always make progress


class Precedence:
    """One per sidecar. `loading()`: whether a task is loading state on this node. `clock`: monotonic seconds."""

    def __init__(self, loading: Callable[[], bool], clock: Callable[[], float] = time.monotonic) -> None:
        self._loading = loading
        self._clock = clock
        self._commit_at = float("-inf")

    def commit(self) -> None:
        """Records a step of a commit: it was requested, received or acknowledged."""
        self._commit_at = self._clock()

    @property
    def under_way(self) -> bool:
        """Whether data files have to yield now."""
        return self._loading() or self._clock() < self._commit_at + QUIET_S

    def wait_s(self, sent_at: float) -> float:
        """Seconds until a link may send its next chunk; 0 or less means now. `sent_at`: time of its last chunk."""
        due_at = sent_at + TRICKLE_S
        return (due_at if self._loading() else min(self._commit_at + QUIET_S, due_at)) - self._clock()

    async def yield_to_commits(self, sent_at: float) -> float:
        """Waits until the next chunk may be sent. Returns the time, for the next call."""
        while (wait_s := self.wait_s(sent_at)) > 0:  # noqa: ASYNC110  the end moves with every commit
            await asyncio.sleep(wait_s)
        return self._clock()


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
