"""The health checks of a sidecar."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable

from rhino_core.health import Check, Health, Notifier
from rhino_core.ids import DiskState, GroupId
from rhino_core.rpc.server import Server
from worker_runtime.manager_link.client import ManagerClient
from worker_runtime.protocol.chain.view import ChainView
from worker_runtime.services.local_socket import LocalSocket
from worker_runtime.storage.store import Store

log = logging.getLogger(__name__)
REPORT_S = 1.0  # interval between reports to gRPC health
COPIES_S_MAX = 900.0  # after which a sidecar is ready although copies are not whole


class CopiesCheck:
    """Fails after a start until the copies of this worker are whole again. Once it has passed, it always passes.

    A rolling restart waits for this check. Otherwise the next restart may hit the only whole copy of a group.
    """

    def __init__(self, worker_id: str, view: ChainView, known: Callable[[], bool], clock: Callable[[], float]) -> None:
        """`known`: whether the manager has named the groups of this worker. `clock`: monotonic seconds."""
        self._worker_id = worker_id
        self._view = view
        self._known = known
        self._clock = clock
        self._since: float | None = None
        self._passed = False

    def failure(self) -> str:
        if self._passed:
            return ""
        if not self._known():
            return "the manager has not named the groups of this worker yet"
        lacking = [group for group in self._view.groups() if self._lacks(group)]
        now = self._clock()
        self._since = now if self._since is None else self._since
        if lacking and now - self._since < COPIES_S_MAX:
            return f"groups that are not whole yet: {len(lacking)}, such as {min(lacking)}"
        if lacking:
            extra = {"groups": len(lacking), "first": str(min(lacking)), "waited_s": COPIES_S_MAX}
            log.warning("ready although copies are not whole", extra=extra)
        self._passed = True
        return ""

    def _lacks(self, group: GroupId) -> bool:
        """Whether this worker is a member that is not whole, or has lost its place to such a member."""
        found = self._view.group(group)
        if found is None:
            return False
        mine = found.member(self._worker_id)
        if mine is None:
            return any(not member.whole for member in found.members)
        return not (mine.whole and self._view.whole(group))


class SidecarChecks:
    """Alive needs the socket, disk and index. Ready needs the manager, room on the disk and whole copies, too."""

    def __init__(self, socket: LocalSocket, store: Store, manager: ManagerClient, copies: CopiesCheck) -> None:
        self._store = store
        self._manager = manager
        self.alive: dict[str, Check] = {"socket": socket.failure, "disk": self._disk, "index": store.index.failure}
        self.ready: dict[str, Check] = {"manager": self._link, "space": self._space, "copies": copies.failure}

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
