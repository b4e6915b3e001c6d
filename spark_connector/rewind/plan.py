"""Selects the batch for the reset of a query, and the log files to move away. No I/O.

A batch is complete when the files of all live workers together open every version in its commit log entry. Prepare
would find the same. Spark starts at its newest offset log entry, and repeats this batch if it has no commit. So batch N
+ 1 keeps its offsets and is computed again with the same boundaries. Later entries must be moved: Spark would start at
the newest of them and skip the batches before it (MicroBatchExecution.populateStartOffsets).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field

from rhino_core.errors import PreconditionError
from rhino_core.ids import FileEntry, GroupId, StoreId, StoreVersion, Version
from spark_connector.query_logs import CommittedBatch, QueryLogs
from worker_runtime.protocol.versions.closure import Catalogue


class StoredFiles:
    """The files of a job on all live workers together, and the highest floors known to these workers."""

    def __init__(self) -> None:
        self._files = Catalogue()
        self._floors: dict[StoreId, Version] = {}

    def add(self, files: Iterable[FileEntry], floors: Iterable[StoreVersion]) -> None:
        """Adds the report of one worker."""
        for entry in files:
            known = self._files.get(entry.store, entry.name)
            if known is None or (known.crc32c, known.size_bytes) == (entry.crc32c, entry.size_bytes):
                self._files.add(entry)
        for store, floor in floors:
            if floor.version > self._floors.get(store, floor).version or store not in self._floors:
                self._floors[store] = floor

    def missing(self, job: str, batch: CommittedBatch) -> Iterator[str]:
        """Yields the incomplete versions of the batch. Finds stores by their unique checkpoint ids."""
        for (operator, partition), ids in sorted(batch.ids.items()):
            group = GroupId(job, operator, partition)
            for checkpoint_id in ids:
                version = Version(batch.batch + 1, checkpoint_id)
                stores = self._files.stores(group).values()
                if not any(version in files.versions() and files.holds(version) for files in stores):
                    yield f"{operator}/{partition} version {version}"

    def floor_above(self, job: str, version: int) -> str:
        """Returns a floor of the job above the version, as text; empty if there is none."""
        past = [f"{s}@{f}" for s, f in sorted(self._floors.items()) if s.job == job and f.version > version]
        return past[0] if past else ""


@dataclass(frozen=True, slots=True)
class IncompleteBatch:
    """A skipped batch: the number of its incomplete versions, and one of them."""

    batch: int
    versions: int
    example: str


@dataclass(frozen=True, slots=True)
class RewindPlan:
    """`batch` becomes the newest committed batch. `moves` are pairs (log, batch) in the required order.

    After each move the logs are in a state that Spark itself could have written. The order ensures this.
    """

    job: str
    newest: int
    batch: int
    replayed: int | None  # already planned: keeps its offsets, and is computed again with the same boundaries
    recomputed: int  # number of batches whose output the sink may already have, including the replayed one
    skipped: tuple[IncompleteBatch, ...] = ()
    moves: tuple[tuple[str, int], ...] = field(default=(), repr=False)

    @property
    def needed(self) -> bool:
        return self.batch != self.newest


def plan_rewind(logs: QueryLogs, stored: StoredFiles) -> RewindPlan:
    """Returns the plan. Raises PreconditionError with the reason when no batch is suitable."""
    if not logs.commits:
        raise PreconditionError(f"query {logs.job}: its commit log is empty, so there is no batch to go back to")
    if not any(batch.ids for batch in logs.commits.values()):
        raise PreconditionError(
            f"query {logs.job}: its commit log names no state; either it keeps none, or it was written without "
            "checkpoint format 2, and Rhino holds nothing of it"
        )
    newest, skipped = max(logs.commits), list[IncompleteBatch]()
    for number in sorted(logs.commits, reverse=True):
        if floor := stored.floor_above(logs.job, number + 1):
            reason = f"the floor {floor} has gone past batch {number}, whose files are being deleted"
            raise PreconditionError(f"query {logs.job}: {_nothing(skipped)}, and {reason}")
        missing = list(stored.missing(logs.job, logs.commits[number]))
        if not missing:
            return _to(logs, newest, number, skipped)
        skipped.append(IncompleteBatch(number, len(missing), missing[0]))
    raise PreconditionError(f"query {logs.job}: {_nothing(skipped)}; start it from a new checkpoint")


def _nothing(skipped: Collection[IncompleteBatch]) -> str:
    numbers = [found.batch for found in skipped]
    return f"no batch from {min(numbers)} to {max(numbers)} is complete" if numbers else "no batch was looked at"


def _to(logs: QueryLogs, newest: int, batch: int, skipped: Iterable[IncompleteBatch]) -> RewindPlan:
    planned = max(logs.offsets, default=-1)
    gaps = sorted(set(range(batch, max(planned, newest) + 1)) - logs.offsets)
    gaps += sorted(set(range(batch, newest + 1)) - logs.commits.keys())
    if gaps:
        raise PreconditionError(
            f"query {logs.job}: its offset or commit log lacks batch {gaps[0]}, which Spark would need; "
            "restore the log from a backup, or start from a new checkpoint"
        )
    moves = []
    for number in range(max(planned, newest), batch, -1):
        moves += [("commits", number)] if number in logs.commits else []
        moves += [("offsets", number)] if number > batch + 1 else []
    replayed = batch + 1 if batch + 1 in logs.offsets else None
    moves = moves if newest != batch else []
    return RewindPlan(logs.job, newest, batch, replayed, planned - batch, tuple(skipped), tuple(moves))
