"""The content of the logs of a query checkpoint. No I/O."""

from __future__ import annotations

from collections.abc import Mapping
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
