"""The checkpoint of a run of new code on the former rows: its state is for born operators.

A file in it, `rebuilt`, names the query of the rows. It is a sketch as well, because it describes the operators.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rhino_core.errors import IntegrityError, PreconditionError
from rhino_core.foreign import read_bytes, read_json, reading
from spark_connector.query_checkpoint import QueryCheckpoint, replace_file
from spark_connector.query_logs import CommittedBatch, Logged, rows_of

FILE = "rebuilt"
AGAIN = "run rebuild() again, which goes on where it has ended"


@dataclass(frozen=True, slots=True)
class Origin:
    """The origin of a rebuilt checkpoint. `former`: the id of the query.

    `first`: its first batch with rows replayed batch by batch. The rows of all batches before it were replayed together
    with those of this one.

    `since`: the state may be taken after this batch or later. It is `first`, or the next one if the former query had a
    watermark at `first`: what closes in a batch reaches operators above in the next one.
    """

    former: str
    first: int
    since: int

    @property
    def shown(self) -> str:
        """For people: since when the state knows rows."""
        return "batch 0" if self.first == 0 else "the rows that the sources still have"

    def write(self, folder: Path) -> None:
        replace_file(folder / FILE, json.dumps(asdict(self)).encode())


def origin_of(folder: Path) -> Origin | None:
    """Returns the origin of the rebuilt checkpoint in `folder`. None: it is another one. Raises IntegrityError."""
    path = folder / FILE
    try:
        fields = read_json(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise IntegrityError(f"{path} is not readable: {error}") from error
    with reading(path):
        return Origin(str(fields["former"]), int(fields["first"]), int(fields["since"]))


@dataclass(frozen=True, slots=True)
class Rebuilding:
    """The rebuilt state after a batch of the former query. `logged`: its versions, under the new numbers."""

    origin: Origin
    checkpoint: QueryCheckpoint
    logged: Logged
    committed: CommittedBatch

    def check_has(self, operators: Collection[int]) -> None:
        """Raises IntegrityError if the batch names no state of one of the operators."""
        if missing := {*operators} - {operator for operator, _ in self.committed.ids}:
            raise IntegrityError(
                f"{self.checkpoint.folder}: batch {self.logged.batch_id} names no state of operator {min(missing)}"
            )


def find_rebuilt(source: QueryCheckpoint, sketch: Path, batch: int) -> Rebuilding | None:
    """Returns the rebuilt state in `sketch` after a batch of the query of `source`. None: it is a mere sketch.

    Raises PreconditionError if it was rebuilt for another query, or does not stand exactly after the batch.
    """
    origin = origin_of(sketch)
    if origin is None:
        return None
    checkpoint = QueryCheckpoint(sketch)
    check_former(origin, source, sketch)
    if origin.first <= batch < origin.since:
        raise PreconditionError(
            f"{sketch}: begins with batch {origin.first}, which has the rows of all batches before it and no "
            f"watermark, so its state may be taken after batch {origin.since} or later; choose a later batch, or "
            "rebuild into another folder with an earlier first batch"
        )
    commits = [number for number in checkpoint.batches("commits") if number >= origin.since]
    if batch not in commits:
        raise PreconditionError(_elsewhere(source, sketch, batch, commits))
    mine, others = (entry_rows(one.folder / "offsets" / str(batch)) for one in (checkpoint, source))
    if mine != others:
        raise PreconditionError(
            f"{sketch}: its batch {batch} ends at {_shown(mine)}, and that of {source.folder} at {_shown(others)}, so "
            "it has had other rows; rebuild into another folder"
        )
    return Rebuilding(origin, checkpoint, checkpoint.logged(batch), checkpoint.committed(batch))


def check_former(origin: Origin, source: QueryCheckpoint, folder: Path) -> None:
    """Raises PreconditionError if the state was rebuilt for another query than the one of `source`."""
    if origin.former != source.job:
        raise PreconditionError(
            f"{folder}: was rebuilt for query {origin.former}, and {source.folder} is query {source.job}; give the "
            "checkpoint for which it was rebuilt, or rebuild into another folder"
        )


def entry_rows(path: Path) -> tuple[bytes, ...]:
    """Returns `rows_of` the entry. Raises IntegrityError."""
    try:
        content = read_bytes(path)
    except OSError as error:
        raise IntegrityError(f"offset log entry {path} cannot be read: {error.strerror}") from error
    with reading(path):
        return rows_of(content)


def _elsewhere(source: QueryCheckpoint, sketch: Path, batch: int, commits: Sequence[int]) -> str:
    asked = f"the new checkpoint begins after batch {batch} of {source.folder} ({_offsets(source, batch)})"
    if not commits:
        return f"{sketch}: has not run enough batches yet, and {asked}; {AGAIN}"
    reached = commits[-1]
    stands = f"{sketch}: stands after batch {reached} ({_offsets(QueryCheckpoint(sketch), reached)}), and {asked}"
    if reached < batch:
        return f"{stands}; {AGAIN}"
    return f"{stands}; choose a batch from {commits[0]} to {reached} (--batch), or rebuild into another folder"


def _offsets(checkpoint: QueryCheckpoint, batch: int) -> str:
    try:
        return f"offsets {_shown(entry_rows(checkpoint.folder / 'offsets' / str(batch)))}"
    except IntegrityError:
        return "its offsets are not in the log any more"


def _shown(rows: tuple[bytes, ...]) -> str:
    return ", ".join(row.decode(errors="replace") for row in rows) or "none"
