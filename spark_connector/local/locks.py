"""Advisory locks on files. The kernel releases them when the last process with the lock ends, however it ends."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from pathlib import Path

from rhino_core.errors import UnavailableError

POLL_S = 0.05
_PROC_LOCKS = Path("/proc/locks")


class HeldLock:
    """A lock of this process, and of every child process that inherits `fd`."""

    def __init__(self, fd: int) -> None:
        self.fd = fd

    def release(self) -> None:
        """Idempotent."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def __enter__(self) -> HeldLock:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


class FileLock:
    """A lock file. It is created if it is missing. It must not be deleted while somebody may use it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def attempt(self, *, shared: bool = False) -> HeldLock | None:
        """Takes the lock, or returns None if others have it. Raises OSError."""
        fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(fd, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            return None
        except BaseException:
            os.close(fd)
            raise
        return HeldLock(fd)

    def take(self, timeout_s: float, *, shared: bool = False) -> HeldLock:
        """Waits for the lock. Raises UnavailableError, with the processes that have it, after `timeout_s`."""
        deadline = time.monotonic() + timeout_s
        while (held := self.attempt(shared=shared)) is None:
            if time.monotonic() > deadline:
                owners = ", ".join(map(str, self.owners())) or "unknown"
                raise UnavailableError(f"{self.path}: locked for more than {timeout_s:g} s by process {owners}")
            time.sleep(POLL_S)
        return held

    def is_held(self) -> bool:
        """Whether any process, this one included, has the lock."""
        held = self.attempt()
        if held is not None:
            held.release()
        return held is None

    def owners(self) -> list[int]:
        """Pids of the processes that took the lock, as far as the kernel tells."""
        with contextlib.suppress(OSError):
            inode = str(self.path.stat().st_ino)
            lines = [line.split() for line in _PROC_LOCKS.read_text().splitlines()]
            held = [words for words in lines if words[1] == "FLOCK"]  # "->" marks a process that waits
            return sorted({int(words[4]) for words in held if words[5].rpartition(":")[2] == inode})
        return []
