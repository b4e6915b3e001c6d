"""Long pieces of work on an event loop, one after the other: short ones have their turn in between."""

from __future__ import annotations

import asyncio


class Turns:
    """A piece of work of more than about a millisecond waits for `take` before it begins.

    No two pieces begin in the same round of the event loop. All other ready work, such as the heartbeat of a sidecar,
    is done between them.
    """

    def __init__(self) -> None:
        self._lock = asyncio.Lock()

    async def take(self) -> None:
        """Waits for a round of the loop in which no other piece begins. Callers have theirs in the order of the calls.

        The piece begins when the method returns, and ends at the caller's next await.
        """
        async with self._lock:
            await asyncio.sleep(0)
