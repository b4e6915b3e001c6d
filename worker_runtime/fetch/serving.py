"""Limits how many files are read for others at the same time, and how long a stalled reader may occupy a place."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Iterator

from rhino_core.errors import UnavailableError

AT_ONCE_PER_HOST = 8
AT_ONCE = 32
WAITING_MAX = 1024
SIGN_S = 5.0  # interval of empty chunks to a waiting client, which would otherwise give up
STALL_S = 30.0  # a reader that accepts no chunk for so long has to ask again; it can resume where it was


def host_of(peer: str) -> str:
    """The host of gRPC's "ipv4:1.2.3.4:567" and similar peer names."""
    return peer.rpartition(":")[0] or peer


class Turnstile:
    """First come, first served, except for hosts with their full share."""

    def __init__(
        self, at_once: int = AT_ONCE, per_host: int = AT_ONCE_PER_HOST, waiting_max: int = WAITING_MAX
    ) -> None:
        self._at_once, self._per_host, self._waiting_max = at_once, per_host, waiting_max
        self._inside: Counter[str] = Counter()
        self._waiting: dict[asyncio.Future[None], str] = {}  # in order of arrival

    @property
    def inside(self) -> int:
        return self._inside.total()

    def enter(self, host: str) -> asyncio.Future[None]:
        """A future that is done at the caller's turn. Pass it to `leave` in any case.

        Raises UnavailableError if too many wait.
        """
        if len(self._waiting) >= self._waiting_max:
            raise UnavailableError(
                f"{self._waiting_max} files are asked for here already: try another worker, or later"
            )
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[turn] = host
        self._admit()
        return turn

    def leave(self, turn: asyncio.Future[None], host: str) -> None:
        if self._waiting.pop(turn, None) is None:
            self._inside[host] -= 1
            self._inside += Counter()  # removes counts of zero
        turn.cancel()
        self._admit()

    def _admit(self) -> None:
        for turn, host in list(self._waiting.items()):
            if self.inside >= self._at_once:
                return
            if self._inside[host] < self._per_host:
                del self._waiting[turn]
                self._inside[host] += 1
                turn.set_result(None)


async def is_turn(turn: asyncio.Future[None]) -> bool:
    """Waits for the turn, at most SIGN_S. Returns whether it has come."""
    await asyncio.wait({turn}, timeout=SIGN_S)
    return turn.done()


class Reader:
    """The client of a call with a stream of chunks.

    If the client stops accepting chunks, the task of the call is cancelled.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.current_task()
        self._waits_since: float | None = None  # since when the call has been waiting for the client to accept a chunk
        self._timer = self._loop.call_later(STALL_S, self._look)

    def close(self) -> None:
        self._timer.cancel()

    @contextlib.contextmanager
    def takes(self) -> Iterator[None]:
        """Use this around each yielded chunk."""
        self._waits_since = self._loop.time()
        try:
            yield
        finally:
            self._waits_since = None

    def _look(self) -> None:
        now = self._loop.time()
        since = now if self._waits_since is None else self._waits_since
        if now - since >= STALL_S and self._task is not None:
            self._task.cancel()
            return
        self._timer = self._loop.call_at(since + STALL_S, self._look)
