"""Which batch a query can go back to, and which files of its logs have to go for that. No I/O.

A batch is whole when the files that the live workers have together open every version that its commit log entry
names: what Prepare would find. Spark starts at its newest offset log entry, and runs it again when it has no commit.
So batch N + 1 keeps its offsets and is computed again with the same boundaries; entries behind it have to go, since
Spark would begin at the newest of them and leave out those before it (MicroBatchExecution.populateStartOffsets).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from rhino.errors import PreconditionError
from rhino.ids import FileEntry, GroupId, StoreId, StoreVersion, Version
from worker_runtime.core.closure import Catalogue


@dataclass(frozen=True, slots=True)
class CommittedBatch:
    """An entry of Spark's commit log: the checkpoint ids of the stores of each (operator, partition)."""

    batch: int
    ids: Mapping[tuple[int, int], tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class QueryLogs:
    """The logs of one query checkpoint. `offsets`: batches that are planned; those in `commits` are done as well."""

    job: str
    offsets: frozenset[int]
    commits: Mapping[int, CommittedBatch]


class HeldState:
    """What the live workers have of a job, together, and the highest floors that they know."""

    def __init__(self) -> None:
        self._files = Catalogue()
        self._floors: dict[StoreId, Version] = {}

    def add(self, files: Iterable[FileEntry], floors: Iterable[StoreVersion]) -> None:
        """One worker's account."""
        for entry in files:
            known = self._files.get(entry.store, entry.name)
            if known is None or (known.crc32c, known.size_bytes) == (entry.crc32c, entry.size_bytes):
                self._files.add(entry)
        for store, floor in floors:
            if floor.version > self._floors.get(store, floor).version or store not in self._floors:
                self._floors[store] = floor

    def missing(self, job: str, batch: CommittedBatch) -> Iterator[str]:
        """Versions of the batch that cannot be opened; a store is known by its checkpoint ids, which are unique."""
        for (operator, partition), ids in sorted(batch.ids.items()):
            group = GroupId(job, operator, partition)
            for checkpoint_id in ids:
                version = Version(batch.batch + 1, checkpoint_id)
                stores = self._files.stores(group).values()
                if not any(version in files.versions() and files.holds(version) for files in stores):
                    yield f"{operator}/{partition} version {version}"

    def floor_above(self, job: str, version: int) -> str:
        """Names a floor of the job that has gone past the version; empty when none has."""
        past = [f"{s}@{f}" for s, f in sorted(self._floors.items()) if s.job == job and f.version > version]
        return past[0] if past else ""


@dataclass(frozen=True, slots=True)
class NotHeld:
    """A batch that is passed over: how many of its versions cannot be opened, and one of them."""

    batch: int
    versions: int
    example: str


@dataclass(frozen=True, slots=True)
class RewindPlan:
    """`batch` becomes the newest committed one. `moves`: (log, batch) in the order in which they have to go.

    The order matters: whatever the last move was, the logs are such as Spark writes them.
    """

    job: str
    newest: int
    batch: int
    replayed: int | None  # planned already: its offsets stay, so that it is computed again with the same boundaries
    recomputed: int  # batches whose output may be in the sink already, the replayed one included
    passed_over: tuple[NotHeld, ...] = ()
    moves: tuple[tuple[str, int], ...] = field(default=(), repr=False)

    @property
    def needed(self) -> bool:
        return self.batch != self.newest


def plan_rewind(logs: QueryLogs, held: HeldState) -> RewindPlan:
    """Raises PreconditionError when no batch will do, naming the reason."""
    if not logs.commits:
        raise PreconditionError(f"query {logs.job}: its commit log is empty, so there is no batch to go back to")
    if not any(batch.ids for batch in logs.commits.values()):
        raise PreconditionError(
            f"query {logs.job}: its commit log names no state; either it keeps none, or it was written without "
            "checkpoint format 2, and Rhino holds nothing of it"
        )
    newest, passed_over = max(logs.commits), list[NotHeld]()
    for number in sorted(logs.commits, reverse=True):
        if floor := held.floor_above(logs.job, number + 1):
            reason = f"the floor {floor} has gone past batch {number}, whose files are being deleted"
            raise PreconditionError(f"query {logs.job}: {_nothing(passed_over)}, and {reason}")
        missing = list(held.missing(logs.job, logs.commits[number]))
        if not missing:
            return _to(logs, newest, number, passed_over)
        passed_over.append(NotHeld(number, len(missing), missing[0]))
    raise PreconditionError(f"query {logs.job}: {_nothing(passed_over)}; start it from a new checkpoint")


def _nothing(passed_over: Collection[NotHeld]) -> str:
    numbers = [found.batch for found in passed_over]
    return f"no batch from {min(numbers)} to {max(numbers)} is held in full" if numbers else "no batch was looked at"


def _to(logs: QueryLogs, newest: int, batch: int, passed_over: Iterable[NotHeld]) -> RewindPlan:
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
    return RewindPlan(logs.job, newest, batch, replayed, planned - batch, tuple(passed_over), tuple(moves))
