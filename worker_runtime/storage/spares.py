"""Empty temporary files, made ahead: on a busy ext4 making one takes half a millisecond, for which a commit would wait.

They lie in folders of their own, which are removed at every start; where making them has become slow, another folder
is taken, elsewhere on the disk (spreading.py). Any thread may ask.
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

from rhino.failpoints import hit

SLOW_S = 0.0001  # of processor time for each file of one round: time for another folder
STAY = 64  # files that are made in a folder before it is left, so that a disk that is slow everywhere has not many
COUNT = 8  # more would come at once only when nobody waits for a single one
LOW = 4  # when so few are left a thread makes others: to wake it for each one would cost more than it saves


def create(path: Path) -> int:
    """A new file, open for writing. Raises OSError."""
    hit("store.incoming.create.before")
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    hit("store.incoming.create.after")
    return fd


class Spares:
    """Made in subfolders of `root`; `later` runs work in a thread some time soon."""

    def __init__(self, root: Path, later: Callable[[Callable[[], None]], None]) -> None:
        self._root = root
        self._later = later
        self._folder: Path | None = None
        self._made = 0  # in this folder
        self._former: list[Path] = []  # to be removed once the last file has been taken
        self._ready: deque[tuple[Path, int]] = deque()
        self._lock = threading.Lock()
        self._filling = False
        self._closed = False

    def take(self) -> tuple[Path, int] | None:
        """A file and its descriptor, if one is ready; others are made when few are left."""
        with self._lock:
            spare = self._ready.popleft() if self._ready else None
            due = len(self._ready) <= LOW and not self._filling and not self._closed
            self._filling = self._filling or due
        if due:
            self._later(self._fill)
        return spare

    def close(self) -> None:
        """Takes them away again; before the threads end."""
        with self._lock:
            self._closed = True
            while self._ready:
                _discard(*self._ready.popleft())
        if self._folder is not None:
            self._leave(self._folder)

    def _fill(self) -> None:
        """A disk that does not take them says so to those who then make their own."""
        try:
            folder, before, started = self._settled(), self._made, time.thread_time()
            while self._wanted():
                path = folder / uuid.uuid4().hex
                spare = path, create(path)
                self._made += 1
                with self._lock:
                    closed = self._closed
                    if not closed:
                        self._ready.append(spare)
                if closed:
                    _discard(*spare)
            if self._made >= STAY and time.thread_time() - started > SLOW_S * (self._made - before):
                self._leave(folder)
        except OSError:
            return
        finally:
            with self._lock:
                self._filling = False

    def _settled(self) -> Path:
        """The folder for now. Raises OSError."""
        if self._folder is None:
            folder = self._root / uuid.uuid4().hex
            folder.mkdir()
            self._folder, self._made = folder, 0
        return self._folder

    def _leave(self, folder: Path) -> None:
        self._folder = None
        self._former.append(folder)
        self._remove_empty()

    def _remove_empty(self) -> None:
        for folder in list(self._former):
            with contextlib.suppress(OSError):  # not empty yet; what stays goes at the next start
                folder.rmdir()
                self._former.remove(folder)

    def _wanted(self) -> bool:
        with self._lock:
            return not self._closed and len(self._ready) < COUNT


def _discard(path: Path, fd: int) -> None:
    os.close(fd)
    path.unlink(missing_ok=True)
