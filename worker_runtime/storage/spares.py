"""Empty temporary files, made ahead: on a busy ext4 making one takes half a millisecond, for which a commit would wait.

They lie in a folder of their own, which is emptied at every start. Any thread may ask.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable
from pathlib import Path

from rhino.failpoints import hit

COUNT = 8  # more would come at once only when nobody waits for a single one
LOW = 4  # when so few are left a thread makes others: to wake it for each one would cost more than it saves


def create(path: Path) -> int:
    """A new file, open for writing. Raises OSError."""
    hit("store.incoming.create.before")
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    hit("store.incoming.create.after")
    return fd


class Spares:
    """`name` gives the path of a new one; `later` runs work in a thread some time soon."""

    def __init__(self, name: Callable[[], Path], later: Callable[[Callable[[], None]], None]) -> None:
        self._name = name
        self._later = later
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

    def _fill(self) -> None:
        """A disk that does not take them says so to those who then make their own."""
        try:
            while self._wanted():
                path = self._name()
                spare = path, create(path)
                with self._lock:
                    closed = self._closed
                    if not closed:
                        self._ready.append(spare)
                if closed:
                    _discard(*spare)
        except OSError:
            return
        finally:
            with self._lock:
                self._filling = False

    def _wanted(self) -> bool:
        with self._lock:
            return not self._closed and len(self._ready) < COUNT


def _discard(path: Path, fd: int) -> None:
    os.close(fd)
    path.unlink(missing_ok=True)
