"""The manager and the sidecar of a data directory, as its users see them."""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rhino_core.errors import PreconditionError, UnavailableError
from spark_connector.conf import application_settings
from spark_connector.driver_certificate import key_conf
from spark_connector.local.directory import LocalDirectory, Running
from spark_connector.local.locks import HeldLock

START_TIMEOUT_S = 90.0  # above the time in which the supervisor gives up
JOIN_TIMEOUT_S = 30.0  # for others that start or end the daemons
POLL_S = 0.05
SPARK_TEMPORARY = Path("/tmp")
_guard = threading.Lock()
_used: dict[Path, HeldLock] = {}  # data directories of this process, until it ends


@dataclass(frozen=True, slots=True)
class LocalDaemons:
    """A manager and a sidecar on this machine for one data directory."""

    manager: str  # "host:port"
    directory: LocalDirectory

    def conf(self, *, integration: str = "provider", jar: Path | None = None) -> dict[str, str]:
        """Returns settings for an application in this process.

        There are no secondary copies, and nothing for short recoveries: one process has no other worker. See
        `recovery_conf`.
        """
        socket = str(self.directory.socket)
        conf = application_settings(
            self.manager, socket=socket, replication_factor=0, integration=integration, recovery=False, jar=jar
        ) | key_conf(self.directory.key, self.directory.driver)
        # Spark's default is /tmp. The sidecar takes hard links of files there if it is on the same file system.
        if SPARK_TEMPORARY.stat().st_dev == self.directory.path.stat().st_dev:
            return conf
        return conf | {"spark.local.dir": str(self.directory.spark)}


def join(data_dir: str | Path | None = None) -> LocalDaemons:
    """Uses the daemons of a data directory until this process ends. Starts them if they do not run.

    Call it as often as you like: it also looks whether the daemons still run. Raises InvalidSettingError and
    PreconditionError for an unusable folder, and UnavailableError if the daemons do not start.
    """
    directory = LocalDirectory(data_dir)
    with _guard:
        directory.create()
        mine = _used.get(directory.path)
        held = mine or directory.users.take(JOIN_TIMEOUT_S, shared=True)
        try:
            daemons = LocalDaemons(_running(directory).manager, directory)
        except BaseException:
            if mine is None:
                held.release()
            raise
        _used[directory.path] = held
    return daemons


def leave(daemons: LocalDaemons) -> None:
    """Stops using the daemons. They end soon after their last user. Idempotent."""
    with _guard:
        if held := _used.pop(daemons.directory.path, None):
            held.release()


def end_unused(directory: LocalDirectory) -> HeldLock:
    """Ends the daemons if no process uses the directory. Returns a lock that keeps users away.

    Raises PreconditionError with the processes that use it.
    """
    alone = directory.users.attempt()
    for _ in range(20):  # the supervisor takes this lock for an instant when it looks for users
        if alone is not None:
            break
        time.sleep(POLL_S)
        alone = directory.users.attempt()
    if alone is None:
        pids = ", ".join(map(str, directory.users.owners())) or "unknown"
        raise PreconditionError(f"{directory.path}: in use by process {pids}; end it first (a notebook: its kernel)")
    running = directory.running()
    if directory.supervisor.is_held() and running is not None:
        os.kill(running.pid, signal.SIGTERM)
    try:
        directory.supervisor.take(JOIN_TIMEOUT_S).release()
        directory.daemons.take(JOIN_TIMEOUT_S).release()
    except BaseException:
        alone.release()
        raise
    return alone


@contextmanager
def temporary_daemons(base: Path | None = None) -> Iterator[LocalDaemons]:
    """Runs daemons in a new folder below `base`. The folder is deleted at the end."""
    folder = Path(tempfile.mkdtemp(prefix="rhino-", dir=base))
    try:
        daemons = join(folder)
        try:
            yield daemons
        finally:
            leave(daemons)
            end_unused(daemons.directory).release()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _running(directory: LocalDirectory) -> Running:
    """Returns the running daemons, started if necessary. Raises UnavailableError."""
    with directory.starting.take(START_TIMEOUT_S):
        deadline = time.monotonic() + START_TIMEOUT_S
        while directory.supervisor.is_held():  # perhaps its starter was killed, and it is not ready yet
            if (running := directory.running()) is not None:
                return running
            if time.monotonic() > deadline:
                raise UnavailableError(f"the daemons in {directory.path} do not get ready; see {directory.logs}")
            time.sleep(POLL_S)
        return _start(directory)


def _start(directory: LocalDirectory) -> Running:
    command = [sys.executable, "-m", "spark_connector.local.supervisor", str(directory.path)]
    path = directory.logs / "supervisor.log"
    with directory.open_log(path.name) as log:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True
        )
    assert process.stdout is not None
    readable, _, _ = select.select([process.stdout], [], [], START_TIMEOUT_S)
    line = process.stdout.readline() if readable else ""
    process.stdout.close()
    found: dict[str, str] = json.loads(line) if line else {"error": path.read_text()[-2000:]}
    if "error" in found:
        raise UnavailableError(f"the daemons in {directory.path} did not start: {found['error']}")
    threading.Thread(target=process.wait, name="rhino-local-supervisor", daemon=True).start()  # leaves no zombie
    return Running(process.pid, found["manager"])
