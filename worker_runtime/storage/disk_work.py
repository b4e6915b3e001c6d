"""Blocking work on the disk, in the right thread, with errors of the disk translated."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from rhino_core.ids import FileEntry, Lane
from worker_runtime.storage.disk import Disk
from worker_runtime.storage.threads import Threads

T = TypeVar("T")


class DiskWork:
    """An OSError of the work becomes NoSpaceError, IntegrityError or UnavailableError, and is recorded."""

    def __init__(self, disk: Disk, threads: Threads) -> None:
        self._disk = disk
        self._threads = threads

    async def on_file(self, entry: FileEntry, work: Callable[[], T]) -> T:
        """Run work on a file: small work at once, else in a thread."""
        return await self.on_bytes(entry.lane, f"{entry.store}/{entry.name}", work, entry.size_bytes)

    async def on_bytes(self, lane: Lane, what: str, work: Callable[[], T], size_bytes: int) -> T:
        """Like `on_file`, on so many bytes. `what` names the subject in errors."""
        return await self._threads.run_small(lane, lambda: self.here(what, work), size_bytes)

    async def in_thread(self, lane: Lane, what: str, work: Callable[[], T]) -> T:
        return await self._threads.run(lane, lambda: self.here(what, work))

    def here(self, what: str, work: Callable[[], T]) -> T:
        """Run the work in this thread."""
        try:
            return work()
        except OSError as error:
            raise self._disk.error(error, what) from error
