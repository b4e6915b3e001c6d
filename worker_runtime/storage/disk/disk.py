"""The disk below a store: whether it accepts new files, and why it failed.

FULL depends on the free space and the free inodes at the moment. `statvfs` shows no quota. So after a write refused for
want of either, or by a quota, FULL lasts until a file can be made again. FAILING stays until the sidecar is restarted:
after one refused write or read, a disk may accept the next one and lose it.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import tempfile
import threading
import time
import weakref
from collections.abc import Iterator
from pathlib import Path

from rhino_core.errors import IntegrityError, NoSpaceError, RhinoError
from rhino_core.ids import DiskState
from worker_runtime.storage.disk.allocation.fallocate import reserve
from worker_runtime.storage.disk.files import storage_error
from worker_runtime.storage.disk.incoming import Incoming

log = logging.getLogger(__name__)
NO_SPACE = "no space left"  # in lower case; RocksDB reports no error numbers
INDEX_BYTES = 1024 * 1024  # needed by RocksDB to open the index and write to it
INODES_KEPT = 1000  # so many are kept free: each changelog is a file
PROBE_BYTES = 64 * 1024 * 1024  # size of the file that shows that a disk takes files again: about that of a data file
PROBE_S = 5.0  # interval between such files
_REFUSED = frozenset({errno.ENOSPC, errno.EDQUOT})
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
        self._refused = ""  # the newest write that had no space, until a file can be made again
        self._probe_at = 0.0  # monotonic seconds

    # ------------------------------------------------------------ space

    def check(self, wanted_bytes: int = 0) -> None:
        """Raises NoSpaceError unless `wanted_bytes` fit beside the announced files, with the reserve left."""
        with self._lock:
            announced = sum(self._announced.values())
        status = self._status()
        if lack := _lack_of_inodes(self._folder, status):
            raise NoSpaceError(lack)
        free = _free_bytes(status)
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
        """Free bytes for this user; 0 if the disk cannot even report them."""
        return _free_bytes(self._status())

    def capacity_bytes(self) -> int:
        """Size of the file system; 0 if the disk cannot even report it."""
        status = self._status()
        return status.f_blocks * status.f_frsize if status is not None else 0

    def _status(self) -> os.statvfs_result | None:
        try:
            return os.statvfs(self._folder)
        except OSError as error:
            self.record_error(error)
            return None

    def _still_refused(self) -> str:
        """The newest refused write. Empty if there was none, or if a file can be made again."""
        if self._refused and time.monotonic() >= self._probe_at:
            self._refused = self._probe()
            self._probe_at = time.monotonic() + PROBE_S
        return self._refused

    def _probe(self) -> str:
        try:
            with tempfile.TemporaryFile(dir=self._folder) as file:
                reserve(file.fileno(), min(self._reserve_bytes, PROBE_BYTES))
        except OSError as error:
            self.record_error(error)
            return self._refused if error.errno in _REFUSED else ""
        return ""

    # ------------------------------------------------------------ failures

    def record_error(self, error: OSError) -> None:
        """Records an error of a failing or full disk. Other errors are ignored."""
        if error.errno in _FAILING:
            self._fail(str(error))
        elif error.errno in _REFUSED:
            why = (
                "free disk space or inodes"
                if error.errno == errno.ENOSPC
                else "raise the quota of this user or project"
            )
            self._refused = f"{self._folder}: a write was refused ({error.strerror}); {why}"

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
        return NO_SPACE in str(error).lower() and self.state()[0] is DiskState.OK

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
        status = self._status()
        free = _free_bytes(status)
        if self._failure:
            return DiskState.FAILING, self._failure
        if free < self._reserve_bytes:
            return DiskState.FULL, f"{self._folder}: {free} bytes free, below --reserve-mb, {self._reserve_bytes}"
        lack = _lack_of_inodes(self._folder, status) or self._still_refused()
        return (DiskState.FULL, lack) if lack else (DiskState.OK, "")


def _free_bytes(status: os.statvfs_result | None) -> int:
    return 0 if status is None else status.f_bavail * status.f_frsize


def _lack_of_inodes(folder: Path, status: os.statvfs_result | None) -> str:
    """For people. Empty if there are enough, or if the file system does not count them."""
    if status is None or not status.f_files or status.f_favail >= INODES_KEPT:
        return ""
    return (
        f"{folder}: {status.f_favail} inodes free of {status.f_files}, and {INODES_KEPT} are to be kept; delete small "
        "files on this file system, or use one with more inodes"
    )
