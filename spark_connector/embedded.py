"""A manager and a sidecar beside this process, for `local[*]` and notebooks; they end with it."""

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
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from rhino.errors import UnavailableError
from spark_connector.java import export_java_home

READY_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True)
class Embedded:
    manager: str
    socket: Path
    folder: Path


@cache
def embedded() -> Embedded:
    """Starts both daemons once per process, in a folder below SPARK_LOCAL_DIRS or the temporary folder."""
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
    """Starts `rhino <service>` and waits for its readiness line; UnavailableError with its log's end otherwise."""
    log = folder / f"{service}.log"
    command = [sys.executable, "-m", "rhino.cli.main", service, "--exit-with-parent"]
    command += ["--data-dir", str(folder / service), *arguments]
    with log.open("w") as sink:
        child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=sink, stdin=subprocess.DEVNULL, text=True)
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
