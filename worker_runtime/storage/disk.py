"""The disk below a store: whether it takes new files, and what it said when it failed.

FULL comes and goes with the free space. FAILING stays until the sidecar is started again: a disk that has refused one
write or read may take the next one and lose it.
"""

from __future__ import annotations

import errno
import logging
import os
import threading
import weakref
from pathlib import Path

from rhino.errors import IntegrityError, NoSpaceError, RhinoError
from rhino.ids import DiskState
from worker_runtime.storage.files import Incoming, storage_error

log = logging.getLogger(__name__)
INDEX_BYTES = 1024 * 1024  # for RocksDB to open the index and write to it
_NO_SPACE = "no space left"  # RocksDB has no error numbers
_FAILING = frozenset({errno.EIO, errno.EROFS, errno.EUCLEAN, errno.ENODEV, errno.ENXIO, errno.EREMOTEIO, errno.ESTALE})


class Disk:
    """Free space and failures. Any thread may call it. At least INDEX_BYTES are kept, whatever `reserve_bytes` says."""

    def __init__(self, folder: Path, reserve_bytes: int) -> None:
        self._folder = folder
        self._reserve_bytes = max(reserve_bytes, INDEX_BYTES)
        self._lock = threading.Lock()
        self._announced: weakref.WeakKeyDictionary[Incoming, int] = weakref.WeakKeyDictionary()
        self._failure = ""

    # ------------------------------------------------------------ space

    def check(self, wanted_bytes: int = 0) -> None:
        """Raises NoSpaceError unless `wanted_bytes` fit beside what is announced, with the reserve left."""
        with self._lock:
            announced = sum(self._announced.values())
        free = self.free_bytes()
        if free < self._reserve_bytes + announced + wanted_bytes:
            on_the_way = f", {announced} for files on their way" if announced else ""
            raise NoSpaceError(
                f"{self._folder}: {free} bytes free, {wanted_bytes} wanted{on_the_way} and {self._reserve_bytes} to be "
                "kept (reserve_bytes); free disk space or lower reserve_bytes"
            )

    def announce(self, incoming: Incoming, remaining_bytes: int) -> None:
        """So many bytes of the file are still to come; 0: none any more."""
        with self._lock:
            self._announced[incoming] = remaining_bytes
            if remaining_bytes <= 0:
                del self._announced[incoming]

    def free_bytes(self) -> int:
        """For this user; 0 when the disk does not even tell."""
        try:
            status = os.statvfs(self._folder)
        except OSError as error:
            self.note(error)
            return 0
        return status.f_bavail * status.f_frsize

    # ------------------------------------------------------------ failures

    def note(self, error: OSError) -> None:
        """Remembers an error that says that the disk fails; any other is of no concern here."""
        if error.errno in _FAILING:
            self._fail(str(error))

    def error(self, error: OSError, doing: str) -> RhinoError:
        """NoSpaceError or IntegrityError to be raised for it; noted."""
        self.note(error)
        return storage_error(error, doing)

    def has_room_again(self, error: Exception) -> bool:
        """The index could not be written because the disk was full, which it is no more."""
        free = self.free_bytes()
        return _NO_SPACE in str(error).lower() and free >= self._reserve_bytes

    def index_error(self, error: Exception, doing: str) -> RhinoError:
        """As `error`, for the index. Any failure to write it but for want of space is a failing disk."""
        if _NO_SPACE in str(error).lower():
            return NoSpaceError(f"{doing}: the index cannot be written: {error}; free disk space")
        self._fail(f"the index cannot be written: {error}")
        return IntegrityError(f"{doing}: the index cannot be written: {error}")

    def _fail(self, message: str) -> None:
        if not self._failure:
            log.error("the disk fails", extra={"folder": str(self._folder), "error": message})
        self._failure = self._failure or message

    def state(self) -> tuple[DiskState, str]:
        """The state and what people should know of it."""
        free = self.free_bytes()
        if self._failure:
            return DiskState.FAILING, self._failure
        if free < self._reserve_bytes:
            return DiskState.FULL, f"{self._folder}: {free} bytes free, below reserve_bytes = {self._reserve_bytes}"
        return DiskState.OK, ""
