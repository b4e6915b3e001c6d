"""Spreads work over time."""

from __future__ import annotations

import asyncio


class Throttle:
    """Keeps the rate of work below `bytes_per_s`. 0 means no limit."""

    def __init__(self, bytes_per_s: int) -> None:
        self._bytes_per_s = bytes_per_s
        self._free_at = 0.0

    async def spend(self, size_bytes: int) -> None:
        """Waits until this many bytes may be processed."""
        if self._bytes_per_s == 0:
            return
        now = asyncio.get_running_loop().time()
        start = max(now, self._free_at)
        self._free_at = start + size_bytes / self._bytes_per_s
        await asyncio.sleep(start - now)
