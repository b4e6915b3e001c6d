"""Drivers and locks of this process instead of Spark's and the kernel's, and supervisors on them."""

from __future__ import annotations

import errno
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from query_evolution.replace.folder import RestartFolder
from query_evolution.replace.supervise import Supervised, Trial
from spark_connector import run_locks
from spark_connector.run_locks import RIGHT

TRIAL = Trial(batches=2, give_up_s=30, ask_s=30)
TOO_MANY = OSError(errno.EMFILE, "Too many open files")
locks: dict[Path, FakeDriver] = {}


class FakeDriver:
    """A query that commits `commits` batches when it is started, and plans one more if `hangs`."""

    def __init__(self, checkpoint: Path, *, commits: int = 2, hangs: bool = False, error: str = "") -> None:
        self._checkpoint = checkpoint
        self._commits = commits
        self._hangs = hangs
        self._start_error = error
        self.rows = self.query = None
        self.runs = self.closed = False
        self.stopped = True
        self.in_batch = False  # its function does not return yet: a stop is too slow
        self.parks = True
        self.error: Exception | None = None

    def take(self, lock: Path) -> bool:
        lock.parent.mkdir(parents=True, exist_ok=True)
        if not lock.exists():
            lock.touch()
        return locks.setdefault(lock, self) is self

    def take_over(self, lock: Path, sign: run_locks.Sign) -> bool:
        """The former owner notices it at its next batch, if it wakes."""
        assert (lock.stat().st_ino, lock.stat().st_mtime_ns) == (sign.inode, sign.mtime_ns)
        locks[lock].runs = False
        locks[lock] = self
        return True

    def has(self, lock: Path) -> bool:
        return lock in locks

    def let_go(self, lock: Path) -> None:
        if locks.get(lock) is self:
            assert lock.name != RIGHT or not (self.runs or self.in_batch)
            del locks[lock]

    @property
    def waits(self) -> bool:
        return not self._hangs

    def start(self) -> None:
        assert locks[RestartFolder(self._checkpoint).lock(RIGHT)] is self
        assert not any(other.runs for other in locks.values())
        if self._start_error:
            raise ValueError(self._start_error)
        self.runs, self.stopped, self.closed = True, False, False
        first = max(RestartFolder(self._checkpoint).committed(), default=-1) + 1
        for batch in range(first, first + self._commits + self._hangs):
            (self._checkpoint / "offsets" / str(batch)).touch()
        for batch in range(first, first + self._commits):
            (self._checkpoint / "commits" / str(batch)).touch()

    def stop(self) -> None:
        self.runs = False
        if self.in_batch:
            raise OSError("java.util.concurrent.TimeoutException: the thread failed to stop")
        self.stopped = True

    def close(self) -> None:
        self.closed = True

    def open(self) -> None:
        self.closed = False

    def is_at_boundary(self) -> bool:
        return self.closed and self.parks


def supervised(
    checkpoint: Path, trial: Trial = TRIAL, *, standby: bool = False, **query: Any
) -> tuple[Supervised, FakeDriver]:
    driver: Any = FakeDriver(checkpoint, **query)
    return Supervised(driver, RestartFolder(checkpoint), "update", trial, standby=standby), driver


def wait_for(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)
