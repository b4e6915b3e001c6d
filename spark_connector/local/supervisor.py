"""The supervisor of one data directory: `python -m spark_connector.local.supervisor DIR`.

It runs a manager and a sidecar as long as any process uses the directory. It has a session of its own, so neither
Ctrl-C nor a notebook's stop button reaches it or its daemons. A process is a user while it has a shared lock on
`users.lock`. The kernel releases this lock when the process ends, also after kill -9.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

from rhino_core.errors import RhinoError, UnavailableError
from rhino_core.settings import without_settings
from spark_connector.local.directory import LocalDirectory, Running

READY_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 10.0
POLL_S = 0.2
LINGER_S = 3.0  # without users: the driver of a user that has just ended may still write
RESTARTS_MAX = 5  # of a daemon within RESTART_WINDOW_S
RESTART_WINDOW_S = 60.0
WORKER_ID = "local"
LOOPBACK = "127.0.0.1:0"


class Daemon:
    """One child process: `rhino manager` or `rhino sidecar`. It ends with this process."""

    def __init__(self, name: str, directory: LocalDirectory, lock_fd: int) -> None:
        self.name = name
        self._directory = directory
        self._log = directory.logs / f"{name}.log"
        self._lock_fd = lock_fd
        self._process: subprocess.Popen[str] | None = None
        self._arguments: tuple[str, ...] = ()
        self._restarts: list[float] = []

    def start(self, *arguments: str) -> dict[str, str]:
        """Starts the daemon and returns its readiness line. Raises UnavailableError with the end of its log."""
        self._arguments = arguments
        command = [sys.executable, "-m", "rhino.cli.main", self.name, "--exit-with-parent", *arguments]
        with contextlib.suppress(FileNotFoundError):
            self._log.replace(self._log.with_suffix(".log.1"))
        with self._directory.open_log(self._log.name) as log:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=without_settings(os.environ),
                pass_fds=(self._lock_fd,),
            )
        self._process = process
        assert process.stdout is not None
        readable, _, _ = select.select([process.stdout], [], [], READY_TIMEOUT_S)
        line = process.stdout.readline() if readable else ""
        if not line:
            self.stop()
            raise UnavailableError(
                f"`rhino {self.name}` did not get ready; the end of {self._log}:\n{self._log.read_text()[-2000:]}"
            )
        ready: dict[str, str] = json.loads(line)
        return ready

    def restart_if_ended(self, now: float, *arguments: str) -> None:
        """`arguments` replace the former ones. Raises UnavailableError if the daemon ends again and again."""
        if self._process is None or self._process.poll() is None:
            return
        say(f"rhino {self.name} has ended with code {self._process.returncode}; starting it again")
        self._restarts = [at for at in self._restarts if at > now - RESTART_WINDOW_S] + [now]
        if len(self._restarts) > RESTARTS_MAX:
            raise UnavailableError(f"`rhino {self.name}` has ended {RESTARTS_MAX} times in a minute; see {self._log}")
        self.start(*(arguments or self._arguments))

    def stop(self) -> None:
        """Ends the process and waits for it. Idempotent."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


class Supervisor:
    """Starts the daemons, restarts them when they end, and ends them after the last user."""

    def __init__(self, directory: LocalDirectory, lock_fd: int) -> None:
        self._directory = directory
        self._manager = Daemon("manager", directory, lock_fd)
        self._sidecar = Daemon("sidecar", directory, lock_fd)
        self._stop = threading.Event()

    def start(self) -> Running:
        """Returns once both daemons answer. Raises UnavailableError."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: self._stop.set())
        former = self._directory.running()
        self._directory.clear_running()
        address = self._start_manager(former.manager if former else LOOPBACK)
        self._sidecar.start(
            *("--data-dir", str(self._directory.sidecar), "--worker-id", WORKER_ID, "--host", os.uname().nodename),
            *("--socket", str(self._directory.socket), "--listen", LOOPBACK, "--manager", address),
            *("--cluster-key", str(self._directory.key)),
        )
        running = Running(os.getpid(), address)
        self._directory.write_running(running)
        return running

    def _start_manager(self, listen: str) -> str:
        """Listens on the address of the former start if it is free: running drivers connect to it again."""
        # The sidecar's folder is younger than the journal. If it exists, an empty journal is a loss to report.
        first = () if self._directory.sidecar.exists() else ("--bootstrap",)
        folder = ("--data-dir", str(self._directory.manager), "--cluster-key", str(self._directory.key), *first)
        try:
            address = self._manager.start(*folder, "--listen", listen)["address"]
        except UnavailableError:
            if listen == LOOPBACK:
                raise
            address = self._manager.start(*folder, "--listen", LOOPBACK)["address"]
        return str(address)

    def run(self, running: Running) -> None:
        """Returns when nobody has used the directory for LINGER_S, or after SIGTERM. Raises UnavailableError."""
        unused_since: float | None = None
        folder = ("--data-dir", str(self._directory.manager), "--cluster-key", str(self._directory.key))
        manager = (*folder, "--listen", running.manager)
        while not self._stop.wait(POLL_S):
            now = time.monotonic()
            self._manager.restart_if_ended(now, *manager)
            self._sidecar.restart_if_ended(now)
            alone = self._directory.users.attempt()
            if alone is None:
                unused_since = None
                continue
            with alone:
                unused_since = unused_since or now
                if now - unused_since >= LINGER_S:
                    self.end()  # with the lock, so that a new user waits for the end and starts the next supervisor
                    shutil.rmtree(self._directory.spark, ignore_errors=True)  # of drivers that were killed
                    return

    def end(self) -> None:
        """Ends both daemons. Idempotent."""
        self._sidecar.stop()
        self._manager.stop()


def announce(fields: dict[str, str]) -> None:
    """Prints a line for the parent process. It may have been killed; others may wait for the daemons."""
    with contextlib.suppress(BrokenPipeError):
        print(json.dumps(fields), flush=True)


def say(text: str) -> None:
    print(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {text}", file=sys.stderr, flush=True)


def supervise(directory: LocalDirectory) -> None:
    """Raises UnavailableError if the daemons cannot be started, or end again and again."""
    with directory.supervisor.take(STOP_TIMEOUT_S), directory.daemons.take(STOP_TIMEOUT_S) as lock:
        supervisor = Supervisor(directory, lock.fd)
        try:
            running = supervisor.start()
            announce({"manager": running.manager})
            say(f"both daemons are ready, the manager on {running.manager}")
            supervisor.run(running)
            say("ended")
        finally:
            supervisor.end()


def main() -> None:
    try:
        supervise(LocalDirectory(Path(sys.argv[1])))
    except (RhinoError, OSError) as error:
        announce({"error": str(error)})
        say(f"error: {error}")
        sys.exit(1)


if __name__ == "__main__":
    main()
