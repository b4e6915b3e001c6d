"""The health checks of a sidecar."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from rhino_core.health import Check, Health, Notifier
from rhino_core.ids import DiskState
from rhino_core.rpc.server import Server
from worker_runtime.manager_link.client import ManagerClient
from worker_runtime.services.local_socket import LocalSocket
from worker_runtime.storage.store import Store

REPORT_S = 1.0  # interval between reports to gRPC health


class SidecarChecks:
    """Alive needs the socket, disk and index. Ready needs the manager and room on the disk, too."""

    def __init__(self, socket: LocalSocket, store: Store, manager: ManagerClient) -> None:
        self._store = store
        self._manager = manager
        self.alive: dict[str, Check] = {"socket": socket.failure, "disk": self._disk, "index": store.index.failure}
        self.ready: dict[str, Check] = {"manager": self._link, "space": self._space}

    def _disk(self) -> str:
        state, message = self._store.space.state()
        return self._store.syncer.failure or (message or "failing" if state is DiskState.FAILING else "")

    def _space(self) -> str:
        state, message = self._store.space.state()
        return message or "full" if state is DiskState.FULL else ""

    def _link(self) -> str:
        if self._manager.connected:
            return ""
        return f"no connection to the manager at {self._manager.address}"


async def report(health: Health, servers: Iterable[Server], registered: Callable[[], bool], notifier: Notifier) -> None:
    """Keeps gRPC health and systemd's status up to date, until cancelled."""
    while True:
        alive, ready = health.alive(), health.ready()
        for server in servers:
            await server.report(alive=alive.good and registered(), ready=ready.good)
        notifier.report(ready)
        await asyncio.sleep(REPORT_S)
