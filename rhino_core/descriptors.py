"""File descriptors of a daemon: raises the limit, and reserves one descriptor for the moment when all are in use."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import resource
import socket
from collections import OrderedDict
from collections.abc import Awaitable, Callable

log = logging.getLogger(__name__)
ENOUGH = 4096  # for connections and the files of a busy store, with a margin
MOST = 1024 * 1024  # when the system sets no limit
USED_UP = frozenset({errno.EMFILE, errno.ENFILE})
EVERY_S = 10.0  # minimum time between two log lines about a repeated failure
KINDS_MAX = 1000  # kinds of lines whose repetitions are counted
PAUSE_S = 1.0  # wait before failed background work restarts


def raise_limit() -> int:
    """Raises the limit of open files as far as the system allows, and returns it. Logs a warning if it is low."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = MOST if hard == resource.RLIM_INFINITY else min(hard, MOST)
    if soft != resource.RLIM_INFINITY and soft < most:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
            soft = most
        except (OSError, ValueError) as error:
            log.warning("the limit of open files stays as it is", extra={"limit": soft, "error": str(error)})
    if soft < ENOUGH:
        log.warning(
            f"few open files are allowed: raise the hard limit (LimitNOFILE of the service) to {ENOUGH} or more",
            extra={"limit": soft},
        )
    return soft


class LogLimit:
    """Limits how often a log line is repeated. `clock` returns monotonic seconds."""

    def __init__(self, clock: Callable[[], float], every_s: float = EVERY_S) -> None:
        self._clock = clock
        self._every_s = every_s
        self._due_at = float("-inf")
        self._left_out = 0

    def due(self) -> int | None:
        """Returns None if the line is not due, else the number of lines suppressed since the last one."""
        now = self._clock()
        if now < self._due_at:
            self._left_out += 1
            return None
        self._due_at = now + self._every_s
        left_out, self._left_out = self._left_out, 0
        return left_out


class LogLimits:
    """One LogLimit for each kind of line. Of kinds that callers can invent, the oldest are dropped."""

    def __init__(self, clock: Callable[[], float], every_s: float = EVERY_S) -> None:
        self._clock = clock
        self._every_s = every_s
        self._limits: OrderedDict[tuple[str, ...], LogLimit] = OrderedDict()

    def due(self, *kind: str) -> int | None:
        """Like LogLimit.due, for lines of this kind."""
        limit = self._limits.setdefault(kind, LogLimit(self._clock, self._every_s))
        if len(self._limits) > KINDS_MAX:
            self._limits.popitem(last=False)
        return limit.due()


class LogShares:
    """A number of lines for each writer in a period. Of writers that callers can invent, the oldest are dropped."""

    def __init__(self, clock: Callable[[], float], lines: int, period_s: float) -> None:
        self._clock = clock
        self._lines = lines
        self._period_s = period_s
        self._used: OrderedDict[str, tuple[float, int, int]] = OrderedDict()  # end of the period, lines, left out

    def due(self, writer: str) -> int | None:
        """Returns None if the writer has used up its share, else the number of lines suppressed before."""
        now = self._clock()
        ends, lines, left_out = self._used.get(writer, (float("-inf"), 0, 0))
        if now >= ends:
            ends, lines = now + self._period_s, 0
        due = lines < self._lines
        self._used[writer] = (ends, lines + 1, 0) if due else (ends, lines, left_out + 1)
        if len(self._used) > KINDS_MAX:
            self._used.popitem(last=False)
        return left_out if due else None


class Reserve:
    """One spare descriptor. It is released to accept and close a connection if no descriptor is left to serve it.

    Otherwise the connection would stay in the listener's queue, and the listener would be woken for it again and again.
    """

    def __init__(self) -> None:
        self._fd = _open()

    def turn_away(self, listener: socket.socket) -> bool:
        """Accepts and closes the next connection of a non-blocking listener. Returns whether there was one."""
        if self._fd < 0:
            self._fd = _open()
            return False
        os.close(self._fd)
        try:
            sock, _ = listener.accept()
            sock.close()
        except OSError:
            return False  # no connection is waiting, or another thread took the free descriptor first
        finally:
            self._fd = _open()
        return True

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def _open() -> int:
    """Returns -1 if no descriptor is free."""
    try:
        return os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return -1


async def run_until_cancelled(what: str, work: Callable[[], Awaitable[None]]) -> None:
    """Runs background work until it is cancelled. Restarts it after an OSError (for example, no free descriptor).

    Any other exception is a bug and is raised.
    """
    log_limit = LogLimit(asyncio.get_running_loop().time)
    while True:
        try:
            return await work()
        except OSError as error:
            if (left_out := log_limit.due()) is not None:
                extra = {"what": what, "error": str(error), "times_before": left_out}
                log.exception("background work has failed, and begins again", extra=extra)
        await asyncio.sleep(PAUSE_S)
