"""Kills the processes of a local cluster when the cluster's parent process dies without cleaning up (kill -9)."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Self

import psutil


class Reaper:
    """A helper process with the read end of a pipe from us. An end of file without "done" means that we died.

    A session is identified by the pid of its leader and the leader's start time. So a reused pid of a foreign process
    is never touched.
    """

    def __init__(self) -> None:
        self._popen = subprocess.Popen(
            [sys.executable, __file__],  # run as a script: it must stay small, and import nothing of the cluster
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
            text=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @property
    def pid(self) -> int:
        return self._popen.pid

    def watch(self, leader: int) -> None:
        """Kills the session led by `leader`, a live child of this process, when this process dies."""
        self._send(f"watch {leader}")

    def forget(self, leader: int) -> None:
        self._send(f"forget {leader}")

    def remove(self, folder: Path) -> None:
        """Deletes `folder` when this process dies."""
        self._send(f"remove {folder}")

    def close(self) -> None:
        """Ends the helper without further action. Call it after cleaning up."""
        if self._popen.poll() is None:
            self._send("done")
            assert self._popen.stdin is not None
            self._popen.stdin.close()
        self._popen.wait()

    def _send(self, line: str) -> None:
        assert self._popen.stdin is not None
        if not self._popen.stdin.closed and self._popen.poll() is None:
            self._popen.stdin.write(line + "\n")
            self._popen.stdin.flush()


def _end_session(leader: int) -> None:
    """Sends SIGKILL to the members of the session, the leader last: its session id cannot be reused before it ends."""
    members = [p for p in psutil.pids() if p != leader and _session_of(p) == leader]
    for pid in [*members, leader]:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue


def _session_of(pid: int) -> int:
    try:
        return os.getsid(pid)
    except ProcessLookupError:
        return -1


def _started(pid: int) -> float | None:
    try:
        return psutil.Process(pid).create_time()
    except psutil.NoSuchProcess:
        return None


def main() -> None:
    """Follows the commands on standard input; see `Reaper`."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    leaders: dict[int, float | None] = {}
    folders: list[str] = []
    for line in sys.stdin:
        command, _, argument = line.strip().partition(" ")
        if command == "done":
            return
        if command == "remove":
            folders.append(argument)
        elif command == "watch":
            leaders[int(argument)] = _started(int(argument))
        else:
            leaders.pop(int(argument), None)
    for leader, started in leaders.items():
        # Executors outlive a worker that has ended; their session still has its id.
        if _started(leader) in (started, None):
            _end_session(leader)
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
