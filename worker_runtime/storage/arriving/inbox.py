"""Cleans up files of the inbox that clients have not handed over.

A refused Add or Commit leaves its file to the client. The client may have died, or may not delete it. On a full disk
such files would keep the disk full.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from worker_runtime.storage.disk.files import NOT_THE_FILE

log = logging.getLogger(__name__)
ABANDONED_S = 600.0  # time without a change or a call; a client that retries does so within seconds


class _Observation(NamedTuple):
    """The status of a file, unchanged since monotonic time `since`. The file's own times follow the wall clock."""

    status: tuple[int, ...]
    since: float


class Inbox:
    """The files in the folders of all sessions. Safe for any thread; `sweep` blocks. `clock`: monotonic seconds."""

    def __init__(self, folder: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._folder = folder
        self._clock = clock
        self._lock = threading.Lock()
        self._used: Counter[str] = Counter()  # keyed by the path as text, which is fast: every commit passes here
        self._observed: dict[str, _Observation] = {}

    @contextlib.contextmanager
    def using(self, path: Path) -> Iterator[None]:
        """Protect the file from deletion while a call works on it."""
        key = str(path)
        with self._lock:
            self._used[key] += 1
            self._observed.pop(key, None)
        try:
            yield
        finally:
            with self._lock:
                self._used[key] -= 1
                if not self._used[key]:
                    del self._used[key]

    def sweep(self) -> int:
        """Deletes files unused for ABANDONED_S and not open for writing. Returns their number."""
        now, former, removed = self._clock(), self._observed, 0
        observed: dict[str, _Observation] = {}
        for path in self._files():
            status = _status(path)
            if status is None:
                continue
            key = str(path)
            seen = former.get(key)
            observed[key] = seen if seen is not None and seen.status == status else _Observation(status, now)
            if now - observed[key].since >= ABANDONED_S and self._remove(path, status):
                del observed[key]
                removed += 1
        with self._lock:
            self._observed = {key: seen for key, seen in observed.items() if key not in self._used}
        if removed:
            log.warning("abandoned inbox files deleted", extra={"files": removed})
        return removed

    def _files(self) -> list[Path]:
        """All inbox files. Sessions may end, and their folders may disappear, meanwhile."""
        found: list[Path] = []
        for session in list(self._folder.iterdir()):
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                found += session.iterdir()
        return found

    def _remove(self, path: Path, status: tuple[int, ...]) -> bool:
        with self._lock:
            if str(path) in self._used or _is_being_written(path) or _status(path) != status:
                return False
            path.unlink(missing_ok=True)
            return True


def _status(path: Path) -> tuple[int, ...] | None:
    """None if the path is gone or is a folder."""
    try:
        found = path.lstat()
    except OSError:
        return None
    return None if path.is_dir() else (found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


def _is_being_written(path: Path) -> bool:
    """Whether a process has the file open for writing. A task has its changelog open for as long as it runs."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        return error.errno in NOT_THE_FILE  # otherwise a link, or no longer a file
    try:
        # If a process opens the file for writing at this moment, the kernel sends a signal. Use SIGURG, because SIGIO
        # would end this process.
        fcntl.fcntl(fd, fcntl.F_SETSIG, signal.SIGURG)
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_RDLCK)  # fails while there is a writer
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_UNLCK)
        return False
    except OSError:
        return True  # also if the file system does not support leases: then nothing is deleted
    finally:
        os.close(fd)
