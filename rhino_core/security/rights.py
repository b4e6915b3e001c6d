"""The roles allowed to call each method. A method without an entry cannot be served.

Some requests name a worker. A worker may name only itself there: `names` returns the name in the request.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from rhino_core.errors import AccessDeniedError
from rhino_core.security.identity import Identity, Role

MANAGER, WORKER, DRIVER, OPERATOR, READER = Role.MANAGER, Role.WORKER, Role.DRIVER, Role.OPERATOR, Role.READER
EVERYBODY = frozenset(Role)


@dataclass(frozen=True, slots=True)
class Right:
    """`roles` may call. None of them: the method is for callers in the same process."""

    roles: frozenset[Role]
    names: Callable[[Any], str] | None = None


def _only(*roles: Role) -> Right:
    return Right(frozenset(roles))


def _named(names: Callable[[Any], str]) -> Right:
    return Right(frozenset({WORKER}), names)


READS = _only(OPERATOR, READER)
CHANGES = _only(OPERATOR)
NOBODY = _only()
_SERVICES: Mapping[str, Mapping[str, Right]] = {
    "rhino.v1.ReplicationManager": {
        "Register": _named(lambda request: request.worker.worker_id),
        "RegisterInParts": _named(lambda part: part.request.worker.worker_id),
        "Heartbeat": _named(lambda request: request.worker_id),
        "WatchGroups": _named(lambda request: request.worker_id),
        "ResolveGroup": _named(lambda request: request.worker_id),
        "ListWorkers": READS,
        "DescribeGroups": READS,
    },
    "rhino.v1.HandoverManager": {
        **dict.fromkeys(("PlanHandover", "WatchHandover", "ListHandovers", "ListJobs", "GetDrain", "Explain"), READS),
        **dict.fromkeys(("ListActions", "ListDecisions", "WatchLoad", "GetArchive"), READS),
        **dict.fromkeys(("StartHandover", "CancelHandover", "DrainWorker", "MoveCheckpoint", "SetJobOwner"), CHANGES),
        **dict.fromkeys(("ForgetJob", "UndoForgetJob", "ForgetWorker", "ArchiveNow"), CHANGES),
        "DriverSession": _only(DRIVER),
    },
    "rhino.v1.Peer": {
        "OpenPush": _named(lambda request: request.sender.worker_id),
        "Inventory": _only(WORKER, OPERATOR),  # `rhino rewind` looks for versions
        "Fetch": _only(WORKER),
        "CheckVersions": _only(WORKER, MANAGER),
        "Describe": _only(MANAGER, OPERATOR, READER),
        "StartScrub": CHANGES,
        "Branch": CHANGES,
        "Archive": _only(MANAGER),
        "Drill": _only(MANAGER),
    },
    "rhino.v1.Witness": {
        **dict.fromkeys(("Identify", "Promise", "Append", "AppendInParts", "FetchRecords"), _only(MANAGER)),
    },
    "grpc.health.v1.Health": dict.fromkeys(("Check", "List", "Watch"), Right(EVERYBODY)),
    "grpc.reflection.v1alpha.ServerReflection": {"ServerReflectionInfo": READS},
}
RIGHTS: Mapping[str, Right] = {
    f"/{service}/{method}": right for service, methods in _SERVICES.items() for method, right in methods.items()
}


def check(method: str, caller: Identity, request: Any = None) -> None:
    """Raises AccessDeniedError unless the caller may call the method, with this request if there is one."""
    right = RIGHTS.get(method, NOBODY)
    if caller.role not in right.roles:
        allowed = ", ".join(sorted(role.value for role in right.roles)) or "no caller over the network"
        raise AccessDeniedError(f"{method}: {caller} may not call it; allowed: {allowed}")
    if request is not None and right.names is not None and (named := right.names(request)) != caller.name:
        raise AccessDeniedError(f"{method}: {caller} speaks for worker {named[:128]!r}, which it is not")
