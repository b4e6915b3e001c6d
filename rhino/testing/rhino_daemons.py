"""The manager and the sidecars of a local cluster, started by their command lines."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from rhino.client.connection import transport
from rhino.testing.process import Process
from rhino.testing.reaper import Reaper
from rhino_core.failpoints import VARIABLE
from rhino_core.rpc.channel import sync_channel
from rhino_core.security.identity import Role
from rhino_core.security.transport import THE_MANAGER, Expected
from rhino_core.settings import SidecarSettings, without_settings


def serving(address: str, expected: Expected = THE_MANAGER, *, timeout_s: float = 2.0) -> bool:
    """Whether the server at "host:port" or "unix:///path" reports SERVING. False if it cannot be reached."""
    with sync_channel(address, transport(), expected) as channel:
        try:
            reply = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=timeout_s)
        except grpc.RpcError as error:
            if error.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED):
                return False
            raise
    return bool(reply.status == health_pb2.HealthCheckResponse.SERVING)


START_TIMEOUT_S = 60.0
OnHost = Callable[[Sequence[str]], list[str]]


def _start(
    name: str, arguments: list[str], *, log_dir: Path, reaper: Reaper, on_host: OnHost = list, failpoints: str = ""
) -> Process:
    command = [sys.executable, "-m", "rhino.cli.main", *arguments, "--exit-with-parent"]
    env = without_settings(os.environ) | ({VARIABLE: failpoints} if failpoints else {})
    return Process(name, on_host(command), log_dir=log_dir, env=env, reaper=reaper)


def announced(process: Process, service: str) -> dict[str, str] | None:
    """Returns the readiness line, one JSON object on standard output; None if it is not there yet."""
    for line in reversed(process.lines()):
        if line.startswith("{"):
            fields: dict[str, str] = json.loads(line)
            if fields.get("service") == service:
                return fields
    return None


def _serving(address: str, expected: Expected) -> bool | None:
    return serving(address, expected) or None


def start_manager(
    data_dir: Path,
    *,
    log_dir: Path,
    reaper: Reaper,
    listen: str = "127.0.0.1:0",
    bootstrap: bool = True,
    cluster_key: str = "",
    failpoints: str = "",
    options: Sequence[str] = (),
) -> Process:
    """Starts a manager, the process "rhino-<folder's name>", without waiting; see `wait_manager`.

    `bootstrap`: its journal is empty.
    `failpoints` are armed in it, see `rhino_core.failpoints`. `options` are further ones of `rhino manager`.
    """
    arguments = ["manager", "--data-dir", str(data_dir), "--listen", listen, *options]
    if bootstrap:
        arguments.append("--bootstrap")
    if cluster_key:
        arguments += ["--cluster-key", cluster_key]
    return _start(f"rhino-{data_dir.name}", arguments, log_dir=log_dir, reaper=reaper, failpoints=failpoints)


def wait_manager(process: Process) -> str:
    """Waits until the manager's health service reports SERVING. Returns its address."""
    line = process.wait_for("readiness line", lambda: announced(process, "manager"), timeout_s=START_TIMEOUT_S)
    address = line["address"]
    process.wait_for("healthy answer", partial(_serving, address, THE_MANAGER), timeout_s=START_TIMEOUT_S)
    return address


def start_sidecar(
    name: str, settings: SidecarSettings, *, log_dir: Path, reaper: Reaper, on_host: OnHost = list
) -> Process:
    """Starts a sidecar without waiting; see `wait_sidecar`.

    Of the settings it gets the names, addresses, folders and the key; the others have their defaults. `on_host` wraps a
    command so that it runs on the sidecar's host.
    """
    arguments = [
        *("sidecar", "--worker-id", settings.worker_id, "--host", settings.host),
        *("--data-dir", str(settings.data_dir), "--socket", str(settings.socket)),
        *("--listen", settings.listen, "--manager", settings.manager),
    ]
    if settings.cluster_key:
        arguments += ["--cluster-key", settings.cluster_key]
    return _start(name, arguments, log_dir=log_dir, reaper=reaper, on_host=on_host)


def wait_sidecar(process: Process) -> str:
    """Waits until the sidecar serves. Returns its peer address."""
    line = process.wait_for("readiness line", lambda: announced(process, "sidecar"), timeout_s=START_TIMEOUT_S)
    expected = Expected(Role.WORKER, line["worker_id"])
    for address in (f"unix://{line['socket']}", line["peer_address"]):
        answers = partial(_serving, address, expected)
        process.wait_for(f"healthy answer at {address}", answers, timeout_s=START_TIMEOUT_S)
    return line["peer_address"]
