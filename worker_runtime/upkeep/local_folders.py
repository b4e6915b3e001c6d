"""Removes the local folders of killed executors from the folder that the setting spark_local_dir names.

Spark removes `blockmgr-*` (its shuffle files) and `spark-*` (its open state stores) when a JVM ends by itself. A killed
executor leaves them. So each executor with Rhino's plugin holds a lock on a file beside each of its folders
(LocalFolders.scala). The kernel ends the lock with the process, and no pause of a JVM or of a connection ends it.

A folder is removed if the sidecar has seen this lock held, and it is held no more. Folders of other processes have no
such file. Where a container hides the locks of its processes, the sidecar has never seen one, and removes nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import logging
import os
import shutil
import stat
import time
from collections.abc import Iterator
from pathlib import Path

from rhino_core.descriptors import LogLimits

log = logging.getLogger(__name__)
PREFIXES = ("blockmgr-", "spark-")
LOCK = ".rhino-lock"  # ends the name of the lock file of a folder
SEEN = b"held\n"  # content of the lock file once the sidecar has seen the lock held
LOOK_S = 10.0
WARN_S = 600.0


class LocalFolders:
    """Looks at the folders in `folder`. They belong to the user of this process, as executors do."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._warnings = LogLimits(time.monotonic, WARN_S)

    async def run(self) -> None:
        while True:
            await asyncio.to_thread(self.look)
            await asyncio.sleep(LOOK_S)

    def look(self) -> None:
        """Removes what killed executors have left."""
        try:
            with _opened(self._folder, os.O_DIRECTORY) as parent:
                for lock in sorted(os.listdir(parent)):
                    if lock.startswith(PREFIXES) and lock.endswith(LOCK):
                        self._remove_left(lock, parent)
        except OSError as error:
            self._warn(str(self._folder), error)

    def _remove_left(self, lock: str, parent: int) -> None:
        name = lock.removesuffix(LOCK)
        try:
            if not _is_left(lock, parent):
                return
            if _is_own_folder(name, parent):
                shutil.rmtree(name, dir_fd=parent)  # follows no link
                log.info("local folder of a killed executor removed", extra={"folder": str(self._folder / name)})
            os.unlink(lock, dir_fd=parent)  # the last: a removal that is cut off goes on later
        except FileNotFoundError:
            return  # its executor is ending by itself
        except OSError as error:
            self._warn(str(self._folder / name), error)

    def _warn(self, folder: str, error: OSError) -> None:
        if self._warnings.due(folder) is not None:
            log.warning("cannot look for folders of killed executors", extra={"folder": folder, "error": str(error)})


def _is_left(lock: str, parent: int) -> bool:
    """Whether the lock was seen held before, and is held no more. Notes that it is held. Raises OSError."""
    with _opened(lock, os.O_RDWR | os.O_NONBLOCK, parent) as file:
        found = os.fstat(file)
        if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid():
            return False
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):
            if not found.st_size:
                os.write(file, SEEN)
            return False
        return found.st_size > 0


def _is_own_folder(name: str, parent: int) -> bool:
    """Whether it is a folder of this user on the file system of its parent. Raises OSError."""
    try:
        found = os.stat(name, dir_fd=parent, follow_symlinks=False)
    except FileNotFoundError:  # Spark has removed it, and was killed then
        return False
    own = found.st_uid == os.geteuid() and found.st_dev == os.fstat(parent).st_dev
    return own and stat.S_ISDIR(found.st_mode)


@contextlib.contextmanager
def _opened(path: str | Path, flags: int, parent: int | None = None) -> Iterator[int]:
    """Opens without following a link to a child of `parent`."""
    follow = os.O_NOFOLLOW if parent is not None else 0
    descriptor = os.open(path, flags | follow | os.O_CLOEXEC, dir_fd=parent)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
