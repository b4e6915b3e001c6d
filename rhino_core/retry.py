"""When to try again: the pauses between attempts, and the loops around them. All times are seconds.

Calls that may fail for a while run on tenacity (`calls_sync`, `until_resolved`). Sessions are opened again whenever
they break. They take their pauses from a `Backoff`.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass

import tenacity

from rhino_core.errors import PreconditionError, UnavailableError

_CALL_WAIT = tenacity.wait_random_exponential(multiplier=0.05, max=1.0)
GROUP_PAUSE_S = 0.2  # between two requests for a group that a commit waits for
GROUP_FOR_S = 10.0  # how long a commit waits for an unreachable manager, or for more workers
FILE_PAUSE_S = 1.0  # before a file is read again that could not be opened because of the process or the system
DESCRIPTOR_PAUSE_S = 0.05  # while the process has no free descriptor for a sync
LINK_ABSENT_S_MAX = 30.0  # longest pause for a worker that is not live; the manager reports its return


@dataclass(frozen=True, slots=True)
class Backoff:
    """The first pause, and the longest: each is twice as long as the one before."""

    first_s: float
    longest_s: float

    def pauses(self) -> Pauses:
        """The pauses of one loop."""
        return Pauses(self)


class Pauses:
    """The next pause of a loop."""

    def __init__(self, backoff: Backoff) -> None:
        self._backoff = backoff
        self._next_s = backoff.first_s

    def reset(self) -> None:
        """An attempt has succeeded."""
        self._next_s = self._backoff.first_s

    def take(self, longest_s: float | None = None) -> float:
        """The pause after a failed attempt. `longest_s` replaces the policy's limit this time."""
        limit_s = self._backoff.longest_s if longest_s is None else longest_s
        pause_s = min(self._next_s, limit_s)
        self._next_s = pause_s * 2
        return pause_s

    async def sleep(self) -> None:
        """Sleeps for the next pause, or for up to half less: a thousand processes must not try again together."""
        await asyncio.sleep(self.take() * random.uniform(0.5, 1.0))


MANAGER = Backoff(0.1, 2.0)  # registration with the manager, and groups that a peer has named
CATCH_UP = Backoff(0.05, 2.0)  # asking members and fetching from them
LINK = Backoff(0.05, 1.0)  # push links to live workers


def calls_sync(retry_for_s: float) -> tenacity.Retrying:
    """Runs a blocking function again while it raises UnavailableError, for so long; once only if 0."""
    return tenacity.Retrying(
        retry=tenacity.retry_if_exception_type(UnavailableError),
        wait=_CALL_WAIT,
        stop=tenacity.stop_after_delay(retry_for_s) if retry_for_s > 0 else tenacity.stop_after_attempt(1),
        reraise=True,
    )


def until_resolved() -> tenacity.AsyncRetrying:
    """Runs a coroutine function again while the manager is unreachable or has too few workers, for GROUP_FOR_S."""
    return tenacity.AsyncRetrying(
        retry=tenacity.retry_if_exception_type((UnavailableError, PreconditionError)),
        wait=tenacity.wait_fixed(GROUP_PAUSE_S),
        stop=tenacity.stop_after_delay(GROUP_FOR_S),
        reraise=True,
    )
