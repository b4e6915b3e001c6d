"""Events and effects in one short line, for traces."""

from __future__ import annotations

import dataclasses
from typing import Any

from rhino_core.ids import Epoch, FileEntry, GroupId, ReplicaGroup, StoreId, Version, Worker


def brief(value: Any) -> str:
    """Names instead of whole objects."""
    match value:
        case Worker():
            return f"{value.worker_id}#{value.incarnation.rpartition('/')[2]}"
        case FileEntry():
            return f"{value.store}/{value.name}"
        case ReplicaGroup():
            members = ">".join(f"{m.worker.worker_id}{'' if m.whole else '?'}" for m in value.members)
            return f"{value.group} {value.epoch} {members} needs {value.required_copies}"
        case StoreId() | GroupId() | Epoch() | Version() | str():
            return str(value)
        case tuple():
            return f"({', '.join(brief(item) for item in value)})"
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = (f"{f.name}={brief(getattr(value, f.name))}" for f in dataclasses.fields(value))
        return f"{type(value).__name__}({', '.join(fields)})"
    return str(value)
