"""One child process of a local cluster, with its own session and output files. It is killed by its own ids only."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import psutil

from rhino.testing.reaper import Reaper
from rhino_core.errors import RhinoError

T = TypeVar("T")
POLL_S = 0.02
TAIL_LINES = 25


class ClusterError(RhinoError):
    """A process of the local cluster did not start, or ended unexpectedly. The message has its name and log tail."""


def tail_of(text: str, log: Path) -> str:
    """The last lines of a log, for error messages."""
    lines = text.splitlines()[-TAIL_LINES:]
    return "".join(f"\n  | {line}" for line in lines) + f"\n  (whole log: {log})"


class Process:
    """A named child process that leads its own session. The session identifies its descendants.

    Standard output goes to `<log_dir>/<name>.out`, standard error to `<log_dir>/<name>.log`. A later process of the
    same name appends to both.
    """

    def __init__(
        self, name: str, command: Sequence[str], *, log_dir: Path, env: Mapping[str, str], reaper: Reaper
    ) -> None:
        self.name = name
        self.out_path = log_dir / f"{name}.out"
        self.log_path = log_dir / f"{name}.log"
        self._reaper = reaper
        self._out_start = _size(self.out_path)
        self._log_start = _size(self.log_path)
        with self.out_path.open("ab") as out, self.log_path.open("ab") as err:
            self._popen = subprocess.Popen(
                list(command), stdin=subprocess.DEVNULL, stdout=out, stderr=err, env=dict(env), start_new_session=True
            )
        reaper.watch(self.pid)

    @property
    def pid(self) -> int:
        return self._popen.pid

    @property
    def running(self) -> bool:
        return self._popen.poll() is None

    @property
    def returncode(self) -> int | None:
        """None while it runs; minus the signal number if a signal ended it."""
        return self._popen.poll()

    def text(self) -> str:
        """The output of this process so far, standard output first."""
        return _read(self.out_path, self._out_start) + _read(self.log_path, self._log_start)

    def lines(self) -> list[str]:
        """Complete lines on standard output so far."""
        written = _read(self.out_path, self._out_start)
        return written[: written.rfind("\n") + 1].splitlines()

    def wait_for(self, what: str, probe: Callable[[], T | None], *, timeout_s: float) -> T:
        """Polls `probe` until it returns a value. ClusterError if the process ends or `timeout_s` has passed."""
        deadline = time.monotonic() + timeout_s
        while True:
            ended = not self.running
            value = probe()
            if value is not None:
                return value
            if ended:
                raise ClusterError(f"{self.name} ended with code {self._popen.returncode}{self.tail()}")
            if time.monotonic() > deadline:
                raise ClusterError(f"{self.name}: no {what} within {timeout_s:g} s{self.tail()}")
            time.sleep(POLL_S)

    def wait_for_match(self, pattern: str, *, timeout_s: float) -> re.Match[str]:
        """Waits for the first match of `pattern` in the output. Raises as `wait_for`."""
        compiled = re.compile(pattern)
        return self.wait_for(f"/{pattern}/ in its output", lambda: compiled.search(self.text()), timeout_s=timeout_s)

    def tail(self) -> str:
        """The last lines of the output, for error messages."""
        return tail_of(self.text(), self.log_path)

    def session_pids(self) -> list[int]:
        """Live pids of this process's session: the process itself first, then the others."""
        pids = [p for p in psutil.pids() if p != self.pid and _session_of(p) == self.pid]
        return ([self.pid] if self.running else []) + pids

    def children(self, marker: str) -> list[int]:
        """Pids in this session, except the leader's, with `marker` in the command line."""
        return [p for p in self.session_pids() if p != self.pid and marker in _command_line(p)]

    def kill(self) -> None:
        """Sends SIGKILL to the whole session, then waits until it has ended. Idempotent."""
        while pids := self.session_pids():
            for pid in pids:
                kill_pid(pid)
            self._popen.wait()
            time.sleep(POLL_S)  # the other processes are not our children, so their end cannot be awaited
        self._popen.wait()
        self._reaper.forget(self.pid)

    def terminate(self, *, timeout_s: float) -> None:
        """Sends SIGTERM to the process, then SIGKILL to the rest of the session after `timeout_s`. Idempotent."""
        if self.running:
            self._popen.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._popen.wait(timeout_s)
        self.kill()


def kill_pid(pid: int) -> None:
    """Sends SIGKILL. Ignores a process that has already ended."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def _session_of(pid: int) -> int:
    try:
        # A zombie has already ended; its parent will reap it.
        return -1 if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE else os.getsid(pid)
    except (ProcessLookupError, psutil.NoSuchProcess):
        return -1


def _command_line(pid: int) -> str:
    try:
        return " ".join(psutil.Process(pid).cmdline())
    except psutil.NoSuchProcess:
        return ""


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _read(path: Path, start: int) -> str:
    with path.open("rb") as file:
        file.seek(start)
        return file.read().decode("utf-8", errors="replace")
