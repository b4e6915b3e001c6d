"""Findings of a shadow run, batch by batch, and their files. Needs no PySpark."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, Self

from rhino_core.errors import UnknownError
from rhino_core.foreign import numbers, read_json, reading
from spark_connector.query_checkpoint import QueryCheckpoint

FOLDER = "shadow"
EXAMPLES_MAX = 20  # of a batch, and of a report


@dataclass(frozen=True, slots=True)
class Difference:
    """A row of one output only, as JSON. `live`, `shadow`: None if the output has no such row.

    With a key, both are rows of the same key.
    """

    batch: int
    live: str | None
    shadow: str | None


@dataclass(frozen=True, slots=True)
class ComparedBatch:
    """A batch run by both queries. Rows count as often as they are there, as in EXCEPT ALL.

    `missing`: rows of the live query only. `surplus`: rows of the shadow only. `live_s`: seconds from the entry in the
    offset log of the live query to its entry in the commit log, by the clock of their file system. `shadow_s`: the
    shadow's time to compute its rows, in seconds of the monotonic clock.
    """

    batch: int
    live_rows: int
    shadow_rows: int
    missing: int
    surplus: int
    live_s: float
    shadow_s: float
    examples: tuple[Difference, ...] = ()

    @property
    def equal(self) -> bool:
        return self.missing == self.surplus == 0

    @classmethod
    def from_fields(cls, fields: dict[str, Any]) -> Self:
        """Raises KeyError, TypeError or ValueError for other content."""
        names = ("batch", "live_rows", "shadow_rows", "missing", "surplus")
        batch, live_rows, shadow_rows, missing, surplus = (int(fields[name]) for name in names)
        live_s, shadow_s = (float(fields[name]) for name in ("live_s", "shadow_s"))
        examples = tuple(Difference(int(e["batch"]), e["live"], e["shadow"]) for e in fields["examples"])
        return cls(batch, live_rows, shadow_rows, missing, surplus, live_s, shadow_s, examples)


@dataclass(frozen=True, slots=True)
class Failure:
    """The failed batch of the new code, and the error of Spark."""

    batch: int
    error: str


@dataclass(frozen=True, slots=True)
class ShadowReport:
    """All batches compared on a branch, in order. `job`: the id of the branch."""

    job: str
    checkpoint: str
    batches: tuple[ComparedBatch, ...]
    failure: Failure | None = None

    @property
    def equal(self) -> int:
        """Returns the number of batches with equal outputs."""
        return sum(one.equal for one in self.batches)

    @property
    def different(self) -> tuple[ComparedBatch, ...]:
        return tuple(one for one in self.batches if not one.equal)

    @property
    def agrees(self) -> bool:
        """Whether at least one batch was compared, all of them agree, and the new code has not failed."""
        return bool(self.batches) and not self.different and self.failure is None

    @property
    def examples(self) -> tuple[Difference, ...]:
        """Returns the first differences, 20 at most."""
        return tuple(example for one in self.batches for example in one.examples)[:EXAMPLES_MAX]


class Results:
    """The folder `shadow` of a branch's checkpoint. It has values of rows, so only its owner may read it."""

    def __init__(self, branch: QueryCheckpoint) -> None:
        self._branch = branch
        self._folder = branch.folder / FOLDER

    def add(self, compared: ComparedBatch) -> None:
        """Replaces the result of an earlier, uncommitted run of the batch."""
        self._write(str(compared.batch), asdict(compared))

    def fail(self, failure: Failure | None) -> None:
        """Keeps the failure of the newest run. None: it has not failed."""
        if failure is None:
            (self._folder / "failure").unlink(missing_ok=True)
        else:
            self._write("failure", asdict(failure))

    def promote(self, fields: dict[str, object]) -> None:
        """Notes the promotion of the branch."""
        self._write("promoted", fields)

    def promoted(self) -> dict[str, Any] | None:
        """Returns the note of `promote`. Raises IntegrityError."""
        return self._read("promoted")

    def report(self) -> ShadowReport:
        """Raises UnknownError if nothing was compared on this branch, and IntegrityError if a file is not readable."""
        failed = self._read("failure")
        found = tuple(sorted(self._batches(), key=lambda one: one.batch))
        with reading(self._folder / "failure"):
            failure = None if failed is None else Failure(int(failed["batch"]), str(failed["error"]))
        if not found and failure is None:
            raise UnknownError(
                f"{self._branch.folder}: no batch was compared on this branch; "
                "start the new code with query_evolution.shadow()"
            )
        return ShadowReport(self._branch.job, str(self._branch.folder.absolute()), found, failure)

    def _batches(self) -> Iterator[ComparedBatch]:
        for batch in numbers(self._folder):
            if (fields := self._read(str(batch))) is not None:
                with reading(self._folder / str(batch)):
                    compared = ComparedBatch.from_fields(fields)
                yield compared

    def _read(self, name: str) -> dict[str, Any] | None:
        path = self._folder / name
        try:
            return read_json(path)
        except FileNotFoundError:
            return None

    def _write(self, name: str, fields: dict[str, Any]) -> None:
        self._folder.mkdir(mode=0o700, exist_ok=True)
        temporary = self._folder / f".{name}.tmp"
        with temporary.open("w") as out:
            json.dump(fields, out)
            out.flush()
            os.fsync(out.fileno())
        temporary.replace(self._folder / name)
