"""Commits and loads go first: while any are under way, data files are sent at a trickle.

The lanes have connections and credit of their own, but not processors: on a busy node every step of a commit would wait
behind chunks of the bulk lane. They give way here, on every worker of a chain, and go on as soon as commits are done.
So would a task that loads state, for which a batch waits.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

QUIET_S = 0.005  # after the newest step of a commit, before data files have the node for themselves again
TRICKLE_S = 0.010  # meanwhile a link sends one chunk in this time: data files go on whatever happens


class Precedence:
    """One per sidecar. `loading()`: whether a task loads state on this node. `clock`: monotonic seconds."""

    def __init__(self, loading: Callable[[], bool], clock: Callable[[], float] = time.monotonic) -> None:
        self._loading = loading
        self._clock = clock
        self._commit_at = float("-inf")

    def commit(self) -> None:
        """A commit has made a step: it has come in, been sent, received or acknowledged."""
        self._commit_at = self._clock()

    @property
    def under_way(self) -> bool:
        """Whether data files have to give way now."""
        return self._loading() or self._clock() < self._commit_at + QUIET_S

    def wait_s(self, sent_at: float) -> float:
        """Seconds until a link whose newest chunk was sent at `sent_at` may send the next one; 0 or less: now."""
        due_at = sent_at + TRICKLE_S
        return (due_at if self._loading() else min(self._commit_at + QUIET_S, due_at)) - self._clock()

    async def give_way(self, sent_at: float) -> float:
        """Waits until the next chunk may be sent; returns the time, for the next call."""
        while (wait_s := self.wait_s(sent_at)) > 0:  # noqa: ASYNC110  the end moves with every commit
            await asyncio.sleep(wait_s)
        return self._clock()
