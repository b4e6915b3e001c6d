"""Syncs all received files periodically, so little has to be read after a power loss.

The kernel writes files back within a minute or so anyway, but does not report it. Without this module, a rebooted
worker could be trusted only after every stored byte had been read. This takes long for a large store.
"""

from __future__ import annotations

import asyncio
import ctypes
import logging
import os
import re
from pathlib import Path

from rhino_core.errors import RhinoError
from rhino_core.failpoints import hit
from worker_runtime.storage.index.arrivals import Arrivals
from worker_runtime.storage.index.index import Index
from worker_runtime.storage.keeping.recovery import ON_DISK_UNTIL

log = logging.getLogger(__name__)
PERIOD_S = 300.0
_libc = ctypes.CDLL(None, use_errno=True)
_SAYS_WHAT_FAILED = (5, 8)  # first Linux version whose syncfs reports errors of earlier writes


class Flusher:
    """Syncs the store's file system and records up to which arrival time files are on disk.

    Its descriptor stays open, because errors between two syncs would otherwise be reported elsewhere. After an error,
    this process records nothing more: files of later arrival than the last record are read after a reboot.
    """

    def __init__(self, folder: Path, index: Index, arrivals: Arrivals) -> None:
        """`folder`: any folder of the file system. Raises OSError."""
        self._folder = folder
        self._index = index
        self._arrivals = arrivals
        self._fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._sound = _version() >= _SAYS_WHAT_FAILED

    def close(self) -> None:
        os.close(self._fd)

    async def run(self) -> None:
        while self._sound:
            await asyncio.sleep(PERIOD_S)
            await self.flush()

    async def flush(self) -> None:
        """Syncs and records the time. Does nothing if no file has arrived since the last time."""
        until_ns, written = self._arrivals.newest_ns, self._index.sequence_number()
        if until_ns <= int(self._index.metadata(ON_DISK_UNTIL) or 0):
            return
        try:
            await asyncio.to_thread(self._sync)
            self._index.on_disk(written)
        except OSError as error:
            self._sound = False
            log.error("what has come is not known to be on disk", extra={"error": str(error)})
            return
        hit("store.flush.before")
        try:
            self._index.put_metadata(ON_DISK_UNTIL, str(until_ns))
        except RhinoError as error:  # the only effect is that more is read after a reboot
            log.warning("not kept until when files are on disk", extra={"error": str(error)})
        hit("store.flush.after")

    def _sync(self) -> None:
        if _libc.syncfs(self._fd) != 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code), str(self._folder))


def _version() -> tuple[int, int]:
    """The version of the kernel; (0, 0) if it does not look like Linux."""
    match = re.match(r"(\d+)\.(\d+)", Path("/proc/sys/kernel/osrelease").read_text())
    return (int(match[1]), int(match[2])) if match else (0, 0)
