"""The space of a store's disk. Partial files are deleted before the disk counts as full."""

from __future__ import annotations

from rhino_core.errors import NoSpaceError
from rhino_core.ids import DiskState, Lane
from worker_runtime.storage.disk.disk import Disk
from worker_runtime.storage.disk.partials import Partials
from worker_runtime.storage.disk.threads import Threads


class Space:
    """Safe for any thread."""

    def __init__(self, disk: Disk, partials: Partials, threads: Threads) -> None:
        self._disk = disk
        self._partials = partials
        self._threads = threads

    def make_room(self, size_bytes: int) -> None:
        """Require room for a new file. Blocks if partial files have to be deleted. Raises NoSpaceError."""
        try:
            self._disk.check(size_bytes)
        except NoSpaceError:
            if not self._partials.clear():
                raise
            self._disk.check(size_bytes)

    def state(self) -> tuple[DiskState, str]:
        """Like `Disk.state`, for people and the manager."""
        state, message = self._disk.state()
        if state is DiskState.FULL and len(self._partials):
            self.clear_partials_later()
            return DiskState.OK, ""  # the next report will exclude them
        return state, message

    def clear_partials_later(self) -> None:
        self._threads.submit(Lane.BULK, self._partials.clear)
