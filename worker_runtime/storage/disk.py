"""The disk below a store: whether it accepts new files, and why it failed.

FULL depends on the free space at the moment. FAILING stays until the sidecar is restarted: a disk that has refused one
write or read may accept the next one and lose it.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import threading
import weakref
from collections.abc import Iterator
from pathlib import Path

from rhino_core.errors import IntegrityError, NoSpaceError, RhinoError
from rhino_core.ids import DiskState
from worker_runtime.storage.files import storage_error
from worker_runtime.storage.incoming import Incoming

log = logging.getLogger(__name__)
NO_SPACE = "no space left"  # in lower case; RocksDB reports no error numbers
INDEX_BYTES = 1024 * 1024  # needed by RocksDB to open the index and write to it
_FAILING = frozenset({errno.EIO, errno.EROFS, errno.EUCLEAN, errno.ENODEV, errno.ENXIO, errno.EREMOTEIO, errno.ESTALE})


class Disk:
    """Free space and failures.

    Safe for any thread. Keeps at least INDEX_BYTES free, even if `reserve_bytes` is lower.
    """

    def __init__(self, folder: Path, reserve_bytes: int) -> None:
        self._folder = folder
        self._reserve_bytes = max(reserve_bytes, INDEX_BYTES)
        self._lock = threading.Lock()
        self._announced: weakref.WeakKeyDictionary[Incoming, int] = weakref.WeakKeyDictionary()
        self._failure = ""

    # ------------------------------------------------------------ space

    def check(self, wanted_bytes: int = 0) -> None:
        """Raises NoSpaceError unless `wanted_bytes` fit beside the announced files, with the reserve left."""
        with self._lock:
            announced = sum(self._announced.values())
        free = self.free_bytes()
        if free < self._reserve_bytes + announced + wanted_bytes:
            on_the_way = f", {announced} for files on their way" if announced else ""
            raise NoSpaceError(
                f"{self._folder}: {free} bytes free, {wanted_bytes} wanted{on_the_way} and {self._reserve_bytes} to be "
                "kept (--reserve-mb); free disk space or lower --reserve-mb"
            )

    def announce(self, incoming: Incoming, remaining_bytes: int) -> None:
        """So many bytes of the file are still to come. 0 ends the announcement."""
        with self._lock:
            self._announced[incoming] = remaining_bytes
            if remaining_bytes <= 0:
                del self._announced[incoming]

    def free_bytes(self) -> int:
        """Free bytes for this user; 0 if the disk cannot even report that."""
        try:
            status = os.statvfs(self._folder)
        except OSError as error:
            self.record_error(error)
            return 0
        return status.f_bavail * status.f_frsize

    # ------------------------------------------------------------ failures

    def record_error(self, error: OSError) -> None:
        """Records an error that indicates a failing disk. Other errors are ignored."""
        if error.errno in _FAILING:
            self._fail(str(error))

    @contextlib.contextmanager
    def errors_of(self, what: str) -> Iterator[None]:
        """An OSError inside is recorded, and becomes NoSpaceError, IntegrityError or UnavailableError.

        `what` names the subject, such as a file.
        """
        try:
            yield
        except OSError as error:
            self.record_error(error)
            raise storage_error(error, what) from error

    def has_room_again(self, error: Exception) -> bool:
        """Whether the index could not be written because the disk was full, and there is room now."""
        free = self.free_bytes()
        return NO_SPACE in str(error).lower() and free >= self._reserve_bytes

    def index_error(self, error: Exception, doing: str) -> RhinoError:
        """The error to raise when the index cannot be written.

        If the index cannot be written for any reason except lack of space, the disk is failing.
        """
        if NO_SPACE in str(error).lower():
            return NoSpaceError(f"{doing}: the index cannot be written: {error}; free disk space")
        self._fail(f"the index cannot be written: {error}")
        return IntegrityError(f"{doing}: the index cannot be written: {error}")

    def _fail(self, message: str) -> None:
        if not self._failure:
            log.error("the disk fails", extra={"folder": str(self._folder), "error": message})
        self._failure = self._failure or message

    def state(self) -> tuple[DiskState, str]:
        """The state, and a message for people."""
        free = self.free_bytes()
        if self._failure:
            return DiskState.FAILING, self._failure
        if free < self._reserve_bytes:
            return DiskState.FULL, f"{self._folder}: {free} bytes free, below --reserve-mb, {self._reserve_bytes}"
        return DiskState.OK, ""
