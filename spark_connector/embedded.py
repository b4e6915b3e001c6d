"""Starts a manager and a sidecar beside this process, for `local[*]` and notebooks. They end with it."""

from __future__ import annotations

import atexit
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from rhino_core.errors import UnavailableError
from rhino_core.settings import without_settings
from spark_connector.conf import recovery_conf, rhino_conf
from spark_connector.java import export_java_home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

READY_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True)
class Embedded:
    """A manager and a sidecar that run beside this process."""

    manager: str
    socket: Path
    folder: Path

    def conf(self, *, integration: str = "provider", jar: Path | None = None) -> dict[str, str]:
        """Returns settings for an application in this process.

        There are no secondary copies, and nothing for short recoveries: one process has no other worker. See
        `recovery_conf`.
        """
        conf = rhino_conf(self.manager, socket=str(self.socket), replication_factor=0, integration=integration, jar=jar)
        return {name: value for name, value in conf.items() if name not in recovery_conf()}


def local_session(
    conf: Mapping[str, str] | None = None, *, integration: str = "provider", jar: Path | None = None
) -> SparkSession:
    """Starts a manager and a sidecar beside this process, and a Spark session that uses them.

    For `local[*]` and notebooks. The daemons end with the process, and their state goes with them. `conf` has further
    settings. `integration` and `jar` are those of `rhino_conf`. Raises UnavailableError if the daemons do not start,
    and otherwise as `rhino_conf`.
    """
    from pyspark.sql import SparkSession

    settings = embedded().conf(integration=integration, jar=jar) | dict(conf or {})
    return SparkSession.builder.config(map=settings).getOrCreate()


@cache
def embedded() -> Embedded:
    """Starts both daemons, once per process, in a folder below SPARK_LOCAL_DIRS or the temporary folder."""
    export_java_home()
    base = os.environ.get("SPARK_LOCAL_DIRS", tempfile.gettempdir()).split(",")[0]
    folder = Path(tempfile.mkdtemp(prefix="rhino-", dir=base))
    children: list[subprocess.Popen[str]] = []
    atexit.register(_stop, children, folder)
    manager = _start(children, folder, "manager", "--bootstrap", "--listen", "127.0.0.1:0")
    address = str(manager["address"])
    socket = folder / "sidecar.sock"
    _start(
        children,
        folder,
        "sidecar",
        *("--worker-id", "embedded", "--host", os.uname().nodename, "--socket", str(socket)),
        *("--listen", "127.0.0.1:0", "--manager", address),
    )
    return Embedded(address, socket, folder)


def _start(children: list[subprocess.Popen[str]], folder: Path, service: str, *arguments: str) -> dict[str, object]:
    """Starts `rhino <service>` and waits for its readiness line. Raises UnavailableError with the end of its log."""
    log = folder / f"{service}.log"
    command = [sys.executable, "-m", "rhino.cli.main", service, "--exit-with-parent"]
    command += ["--data-dir", str(folder / service), *arguments]
    environment = without_settings(os.environ)
    with log.open("w") as sink:
        child = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=sink, stdin=subprocess.DEVNULL, text=True, env=environment
        )
    children.append(child)
    assert child.stdout is not None
    deadline = time.monotonic() + READY_TIMEOUT_S
    readable, _, _ = select.select([child.stdout], [], [], deadline - time.monotonic())
    line = child.stdout.readline() if readable else ""
    if not line:
        raise UnavailableError(
            f"embedded `rhino {service}` did not get ready; the end of {log}:\n{log.read_text()[-2000:]}"
        )
    ready: dict[str, object] = json.loads(line)
    return ready


def _stop(children: list[subprocess.Popen[str]], folder: Path) -> None:
    for child in reversed(children):
        child.terminate()
    for child in reversed(children):
        try:
            child.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            child.kill()
    shutil.rmtree(folder, ignore_errors=True)
