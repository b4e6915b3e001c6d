"""Preallocated empty temporary files. Creating a file on a busy ext4 is slow, and a commit would wait for it.

The files are in folders of their own. Every start removes these. When creating files in a folder becomes slow, a new
folder elsewhere on the disk is used (`spread_subfolders` in allocator.py). Safe for any thread.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable
from pathlib import Path

from rhino_core.folder import FOLDER_MODE
from worker_runtime.storage.disk.files import create

SLOW_S = 0.0001  # processor time per file of one round above which another folder is used
STAY = 64  # minimum number of files per folder, so that a disk that is slow everywhere does not get many folders
COUNT = 8  # files kept ready; more would be used at once only when no caller waits for a single one
LOW = 4  # when so few are left, a thread creates more: waking it for each file would cost more than it saves


class PreallocatedFiles:
    """Preallocated files in subfolders of `root`. `later` runs work in a thread soon."""

    def __init__(self, root: Path, later: Callable[[Callable[[], None]], None]) -> None:
        self._root = root
        self._later = later
        self._folder: Path | None = None
        self._created = 0  # files created in the present folder
        self._former: list[Path] = []  # to be removed once their last file has been taken
        self._ready: deque[tuple[Path, int]] = deque()
        self._lock = threading.Lock()
        self._filling = False
        self._closed = False

    def take(self) -> tuple[Path, int] | None:
        """A file and its descriptor, or None if none is ready. Starts the creation of more when few are left."""
        with self._lock:
            made = self._ready.popleft() if self._ready else None
            due = len(self._ready) <= LOW and not self._filling and not self._closed
            self._filling = self._filling or due
        if due:
            self._later(self._fill)
        return made

    def close(self) -> None:
        """Deletes the remaining files. Call this before the threads end."""
        with self._lock:
            self._closed = True
            while self._ready:
                _discard(*self._ready.popleft())
        self._leave()

    def _fill(self) -> None:
        """Creates files until enough are ready.

        Errors of the disk are ignored here: callers meet them when they create their own files.
        """
        try:
            folder, before, started = self._settled(), self._created, time.thread_time()
            while self._wanted():
                path = folder / uuid.uuid4().hex
                made = path, create(path)
                self._created += 1
                with self._lock:
                    closed = self._closed
                    if not closed:
                        self._ready.append(made)
                if closed:
                    _discard(*made)
            if self._created >= STAY and time.thread_time() - started > SLOW_S * (self._created - before):
                self._leave()
        except OSError:
            return
        finally:
            with self._lock:
                self._filling = False
                closed = self._closed
            if closed:  # close() could not remove the folder while files were being created here
                self._leave()

    def _settled(self) -> Path:
        """The present folder, created if necessary. Raises OSError."""
        if self._folder is None:
            folder = self._root / uuid.uuid4().hex
            folder.mkdir(mode=FOLDER_MODE)
            self._folder, self._created = folder, 0
        return self._folder

    def _leave(self) -> None:
        """Stops using the present folder. Removes earlier folders after all their files have been taken."""
        with self._lock:
            if self._folder is not None:
                self._former.append(self._folder)
                self._folder = None
            for folder in list(self._former):
                with contextlib.suppress(OSError):  # not empty yet; the next start removes what remains
                    folder.rmdir()
                    self._former.remove(folder)

    def _wanted(self) -> bool:
        with self._lock:
            return not self._closed and len(self._ready) < COUNT


def _discard(path: Path, fd: int) -> None:
    os.close(fd)
    path.unlink(missing_ok=True)
