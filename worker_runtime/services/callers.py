"""Rights of other sidecars at this one, by the certificate of the call.

Without certificates no caller proves an identity, so everybody with access to the port may ask.
"""

from __future__ import annotations

from asyncio import get_running_loop
from collections.abc import Awaitable, Callable

from rhino_core.errors import AccessDeniedError, UnavailableError
from rhino_core.ids import GroupId
from rhino_core.security.identity import CALLER, Role
from worker_runtime.manager_link.directory import Directory
from worker_runtime.replication import Replication

REMEMBERED_S = 30.0  # how long the manager's yes counts: a Prepare fetches many files
MayUse = Callable[[GroupId, str], Awaitable[bool]]


class Callers:
    """`may_use` asks the manager about a worker outside a group."""

    def __init__(self, replication: Replication, directory: Directory, may_use: MayUse) -> None:
        self._replication = replication
        self._directory = directory
        self._may_use = may_use
        self._allowed: dict[tuple[GroupId, str], float] = {}  # until when

    def require_registered(self) -> str:
        """Returns the id of the calling worker; empty for operators, managers, and without certificates.

        Raises UnavailableError for a worker not named by the manager.
        """
        caller = CALLER.get()
        if caller is None or caller.role is not Role.WORKER:
            return ""
        return self._directory.named(caller.name).worker_id

    async def require_user(self, group: GroupId) -> None:
        """For the content of files. Also raises AccessDeniedError for a worker without a relation to the group.

        State has to load without a manager: while it cannot be asked, every registered worker may.
        """
        worker_id = self.require_registered()
        known = self._replication.group(group)
        if not worker_id or (known is not None and known.member(worker_id) is not None):
            return
        now = get_running_loop().time()
        if now < self._allowed.get((group, worker_id), 0.0):
            return
        try:
            allowed = await self._may_use(group, worker_id)
        except UnavailableError:
            return
        self._allowed = {key: until for key, until in self._allowed.items() if now < until}
        if not allowed:
            raise AccessDeniedError(
                f"worker {worker_id!r} may not have files of {group}: it is no member of the group, and no executor of "
                "the query runs there"
            )
        self._allowed[group, worker_id] = now + REMEMBERED_S
