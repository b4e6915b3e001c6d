"""The right to run a query: a lock in its checkpoint. The driver's JVM has it (Scala: RunLocks).

This module looks for its owner. A command takes it while it decides about a stopped query.
"""

from __future__ import annotations

import contextlib
import fcntl
import getpass
import json
import os
import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rhino_core.errors import IntegrityError, PreconditionError
from rhino_core.foreign import read_json
from spark_connector.facts import make_folder

RIGHT = "run"
UNSUPERVISED = "unsupervised"  # as in Gate.scala
_FLOCK = "hhqqi4x"  # struct flock of Linux: type, whence, start, length, pid


@dataclass(frozen=True, slots=True)
class Sign:
    """The file of a lock, and its time. Its owner sets the time every two seconds (Scala: RunLocks)."""

    inode: int
    mtime_ns: int


class RunLocks:
    """`checkpoint`: the folder of a query checkpoint. It need not exist yet."""

    def __init__(self, checkpoint: Path) -> None:
        self.path = checkpoint / "restarts"

    def lock(self, name: str) -> Path:
        """`name`: RIGHT, or the number of a request."""
        return self.path / "locks" / name

    def lives(self, number: int) -> bool:
        """Whether the application of a request has its lock."""
        return is_locked(self.lock(str(number)))

    def owned(self) -> bool:
        """Whether any process has the right to run."""
        return is_locked(self.lock(RIGHT))

    @contextlib.contextmanager
    def right(self) -> Iterator[None]:
        """Has the right to run, so no driver runs the query until the end of the block.

        Raises PreconditionError if another process has it. The process of the query must not call this: it would lose
        the right at the end.
        """
        path = self.lock(RIGHT)
        make_folder(path.parent)
        with os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT, 0o600), "r+") as file:
            try:
                fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.fstat(file.fileno()).st_ino != path.stat().st_ino:  # a standby has just replaced it
                    raise BlockingIOError
            except BlockingIOError:
                raise PreconditionError(
                    f"{self.path.parent}: {self.owner()} runs the query, and decides about its batches: stop it first"
                ) from None
            file.truncate(0)
            fields = {"pid": os.getpid(), "user": getpass.getuser(), "host": socket.gethostname(), "says": UNSUPERVISED}
            json.dump(fields, file)
            file.flush()
            yield

    def sign(self) -> Sign | None:
        """Returns the owner's newest sign of life. None: nobody has the right, or its owner gives no signs."""
        path = self.lock(RIGHT)
        if not is_locked(path) or not self._owner().get("sign_s"):
            return None
        with path.open("rb") as file:  # opened: a file system in the network then asks its server
            status = os.fstat(file.fileno())
            return Sign(status.st_ino, status.st_mtime_ns)

    def owner_here(self) -> int | None:
        """Returns the process of the owner. None if it is not on this machine, as far as this process sees."""
        fields, pid = self._owner(), _locker(self.lock(RIGHT))
        return pid if pid and (fields.get("pid"), fields.get("host")) == (pid, socket.gethostname()) else None

    def owner(self) -> str:
        """Returns who has written last that it has the right to run, for people."""
        fields = self._owner()
        if not fields:
            return "another process"
        return f"process {fields.get('pid')} of user {fields.get('user')} on {fields.get('host')}"

    def owner_is_supervised(self) -> bool:
        return self._owner().get("says") != UNSUPERVISED

    def _owner(self) -> dict[str, Any]:
        """Empty while it is being written."""
        try:
            return read_json(self.lock(RIGHT))
        except (OSError, IntegrityError):
            return {}


def is_locked(path: Path) -> bool:
    """Whether another process has the lock. It is not taken, not even for a moment."""
    return _locker(path) is not None


def _locker(path: Path) -> int | None:
    """The process with the lock, in the kernel's words: not above 0 if it is elsewhere. None: nobody has it."""
    try:
        with path.open("rb") as file:
            asked = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
            kind, _, _, _, pid = struct.unpack(_FLOCK, fcntl.fcntl(file, fcntl.F_GETLK, asked))
            return None if kind == fcntl.F_UNLCK else int(pid)
    except FileNotFoundError:
        return None
