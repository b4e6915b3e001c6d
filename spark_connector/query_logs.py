"""The content of the logs of a query checkpoint. No I/O."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from rhino_core.ids import StoreVersion


@dataclass(frozen=True, slots=True)
class CommittedBatch:
    """An entry of Spark's commit log: the checkpoint ids of the stores of each (operator, partition)."""

    batch: int
    ids: Mapping[tuple[int, int], tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class QueryLogs:
    """The logs of one query checkpoint. `offsets`: planned batches. `commits`: the committed ones of them."""

    job: str
    offsets: frozenset[int]
    commits: Mapping[int, CommittedBatch]


@dataclass(frozen=True, slots=True)
class Logged:
    """The newest committed batch, and the versions of its stores."""

    batch_id: int
    versions: tuple[StoreVersion, ...]


def rows_of(entry: bytes) -> tuple[bytes, ...]:
    """Returns the part of an offset log entry that names rows: the offsets of each source."""
    return tuple(entry.rstrip().split(b"\n")[2:])


def ids_of(versions: Iterable[StoreVersion]) -> dict[int, list[list[str]]]:
    """Returns the checkpoint ids of versions as the commit log has them: by operator, for each partition its stores."""
    found: dict[int, dict[int, list[str]]] = {}
    for store, version in versions:
        found.setdefault(store.operator, {}).setdefault(store.partition, []).append(version.checkpoint_id)
    return {operator: [ids for _, ids in sorted(partitions.items())] for operator, partitions in found.items()}


def commit_entry(batch: int, text: str) -> CommittedBatch:
    """Returns an entry of the commit log. Without checkpoint ids, as in format 1, `ids` is empty.

    Raises ValueError, or another error of a parser, for damaged content.
    """
    version, _, body = text.partition("\n")
    if version.strip() not in ("v1", "v2", "v3"):
        raise ValueError(f"version of the log {version!r}, expected v1, v2 or v3")
    fields = json.loads(body or "{}")
    named = fields.get("stateUniqueIds") or {} if version.strip() != "v1" else {}
    ids = {
        (int(operator), partition): tuple(str(store) for store in stores or ())
        for operator, partitions in sorted(named.items(), key=lambda item: int(item[0]))
        for partition, stores in enumerate(partitions)
    }
    return CommittedBatch(batch, ids)
