"""Leads a process that stops itself at every armed failpoint: looks which one it is, acts, lets it go on."""

from __future__ import annotations

import os
import re
import signal
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import psutil

from rhino.testing.process import ClusterError

POLL_S = 0.005
_POINT = re.compile(rb"^failpoint (\S+)$", re.MULTILINE)
Act = Callable[[], object]


class Puppeteer(threading.Thread):
    """`script`: points that are waited for, one after the other, each with what is to be done while the process stands
    there. Between them, and without a script, it goes on at once.
    """

    def __init__(self, pid: Callable[[], int], log: Path) -> None:
        """`pid`: of the present process; ClusterError if there is none. `log`: its standard error."""
        super().__init__(name="puppeteer", daemon=True)
        self._pid = pid
        self._log = log
        self._read = 0  # bytes of the log
        self._script: list[tuple[str, Act]] = []
        self._lock = threading.Lock()
        self._ending = threading.Event()
        self._failure: Exception | None = None

    def play(self, script: Sequence[tuple[str, Act]]) -> None:
        with self._lock:
            self._script = list(script)

    def played(self) -> bool:
        """Whether the script is over. Raises what one of its acts has raised."""
        if self._failure is not None:
            raise self._failure
        with self._lock:
            return not self._script

    def end(self) -> None:
        self._ending.set()
        self.join()

    def run(self) -> None:
        while not self._ending.wait(POLL_S):
            try:
                pid = self._pid()
                if psutil.Process(pid).status() == psutil.STATUS_STOPPED:
                    self._stands(pid)
            except (ClusterError, psutil.NoSuchProcess, ProcessLookupError):
                continue  # not started yet, or killed just now
            except Exception as error:  # an act has failed: `played` reports it
                self._failure = error

    def _stands(self, pid: int) -> None:
        """Several threads may have reached points: each of them stops the process, the first one for all."""
        try:
            for point in self._reached():
                with self._lock:
                    act = self._script.pop(0)[1] if self._script and self._script[0][0] == point else None
                if act is not None:
                    act()
        finally:
            os.kill(pid, signal.SIGCONT)

    def _reached(self) -> list[str]:
        """The points since the last call."""
        with self._log.open("rb") as file:
            if self._log.stat().st_size < self._read:  # a new process has begun the log again
                self._read = 0
            file.seek(self._read)
            lines, newline, _ = file.read().rpartition(b"\n")
        self._read += len(lines + newline)
        points: list[bytes] = _POINT.findall(lines)
        return [point.decode() for point in points]
