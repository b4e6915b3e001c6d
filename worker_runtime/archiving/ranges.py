"""Reads the bytes of many files from packs, a few requests ahead, within a budget of memory."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable

from rhino_archive.bucket import Bucket
from rhino_archive.manifest import Extent, pack_name
from rhino_archive.packs import PACK_BYTES, ranges
from rhino_core.errors import IntegrityError

AHEAD_BYTES = 2 * PACK_BYTES  # of one reader
AHEAD = 16  # requests of one reader at once


class Budget:
    """Memory shared by readers: first come, first served."""

    def __init__(self, size_bytes: int) -> None:
        self._size_bytes = self._free_bytes = size_bytes
        self._turn = asyncio.Lock()
        self._freed = asyncio.Event()

    @contextlib.asynccontextmanager
    async def hold(self, size_bytes: int) -> AsyncIterator[None]:
        """Takes so many bytes, or all there are if these are fewer."""
        size_bytes = min(size_bytes, self._size_bytes)
        async with self._turn:
            while self._free_bytes < size_bytes:
                self._freed.clear()
                await self._freed.wait()
            self._free_bytes -= size_bytes
        try:
            yield
        finally:
            self._free_bytes += size_bytes
            self._freed.set()


class RangeReader:
    """Reads extents in the order of `extents`; some may be left out. Close it in any case."""

    def __init__(self, bucket: Bucket, job: str, extents: Iterable[Extent]) -> None:
        self._bucket = bucket
        self._job = job
        found = ranges(dict.fromkeys(extents))
        self._ranges = [range_ for range_, _ in found]
        self._numbers = {extent: number for number, (_, theirs) in enumerate(found) for extent in theirs}
        self._tasks: dict[int, asyncio.Task[bytes]] = {}  # requests under way and finished, by number
        self._next = 0  # number of the next request
        self.memory_bytes = min(sum(range_.size_bytes for range_ in self._ranges), AHEAD_BYTES)

    async def read(self, extent: Extent) -> memoryview:
        """Raises IntegrityError for a pack that is too short, and the bucket's errors."""
        number = self._numbers[extent]
        for former in [former for former in self._tasks if former < number]:
            self._tasks.pop(former).cancel()
        if number not in self._tasks:  # a step back is rare: the same bytes under two names
            self._tasks[number] = self._request(number)
        self._next = max(self._next, number + 1)
        self._read_ahead()
        start = extent.offset - self._ranges[number].offset
        return memoryview(await self._tasks[number])[start : start + extent.size_bytes]

    def _read_ahead(self) -> None:
        under_way = sum(self._ranges[number].size_bytes for number in self._tasks)
        while self._next < len(self._ranges) and len(self._tasks) < AHEAD:
            under_way += self._ranges[self._next].size_bytes
            if under_way > AHEAD_BYTES:
                return
            self._tasks[self._next] = self._request(self._next)
            self._next += 1

    def _request(self, number: int) -> asyncio.Task[bytes]:
        return asyncio.create_task(self._get(self._ranges[number]), name=f"pack {self._ranges[number].pack}")

    async def _get(self, wanted: Extent) -> bytes:
        name = pack_name(self._job, wanted.pack)
        data = await self._bucket.get_range(name, wanted.offset, wanted.size_bytes)
        if len(data) != wanted.size_bytes:
            raise IntegrityError(f"archive {self._bucket.url}: {name} is too short")
        return data

    async def close(self) -> None:
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        self._tasks.clear()
