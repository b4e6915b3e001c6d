"""The folder `modifications` of a query checkpoint: one file for each fact, written once and atomically.

records/<number> and jars/<sha256>.jar are by `rhino modify`. tables/<number>, outcomes/<number>, bindings/<batch>,
returns/<batch>, figures/<batch> and comparisons/<number> are by the driver. Withdrawals are outcomes and returns, too.
A comparison may have values of rows, so it is removed when it has been read. Nothing here reads tables.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from query_evolution.modify.comparison import Comparison
from query_evolution.modify.jars import JarFunction
from query_evolution.modify.ledger import Binding, Figures, Findings, Judged, Ledger, Return
from query_evolution.modify.record import Canary, Change, Record, Sample
from rhino_core import failpoints
from rhino_core.errors import AccessDeniedError, ConflictError, IntegrityError
from rhino_core.foreign import numbers, read_bytes, read_json, read_text, reading, require_closed
from spark_connector.facts import create_fact, make_folder, replace_file

TRIES = 100  # others may take the same number
T = TypeVar("T")
SETTLE_S = 0.05  # a driver that was just about to decide has decided


class ModificationFolder:
    """`checkpoint`: an existing query checkpoint. Nothing is created before the first record."""

    def __init__(self, checkpoint: Path) -> None:
        self._root = checkpoint / "modifications"

    def read(self) -> Ledger:
        """Reads in the reverse order of writing: a file was written after the files it refers to, so these are found.

        Raises IntegrityError if a file is not readable or missing, and AccessDeniedError if another user could have
        written it.
        """
        judged = self._facts("figures", _judged)
        returned = self._facts("returns", _return)
        bindings = self._facts("bindings", _binding)
        outcomes = self._facts("outcomes", _outcome)
        texts = {number: self._text("records", number) for number in self._numbers("records")}
        checked = [(number, digest) for number, (_, digest) in outcomes.items() if number in texts]
        self._compare(texts, checked + [pair for _, digests in bindings.values() for pair in digests])
        return Ledger(
            {number: Record.from_json(number, text) for number, text in texts.items()},
            {number: outcome for number, (outcome, _) in outcomes.items()},
            {batch: binding for batch, (binding, _) in bindings.items()},
            returned,
            judged,
        )

    def add(
        self,
        change: Change,
        author: str,
        *,
        dry_run: bool,
        canary: Canary | None = None,
        sample: Sample | None = None,
    ) -> Record:
        """Writes a new record and returns it. Raises ConflictError if others write without end.

        Raises AccessDeniedError if another user could replace it: no driver would read it.
        """
        folder = self._own_folder("records")
        for _ in range(TRIES):
            number = max(self._numbers("records"), default=0) + 1
            record = Record(number, change, author, time.time_ns() // 1_000_000, dry_run, canary, sample)
            failpoints.hit("modification.record.before")
            if create_fact(folder, number, record.to_json()):
                failpoints.hit("modification.record.after")
                return record
        raise ConflictError(f"{self._root}: others add modifications all the time; try again")

    def keep_jar(self, function: JarFunction) -> None:
        """Puts the jar beside the records. Its record must come after it."""
        path = self._own_folder("jars") / f"{function.code.sha256}.jar"
        with contextlib.suppress(FileNotFoundError, AccessDeniedError, IntegrityError):  # it is replaced
            if hashlib.sha256(read_bytes(path, own=True)).hexdigest() == function.code.sha256:
                return
        failpoints.hit("modification.jar.before")
        replace_file(path, function.content)
        failpoints.hit("modification.jar.after")

    def take_comparison(self, number: int) -> Comparison | None:
        """Returns the findings of a dry run, and removes them. None: there is none, or it has been taken.

        Raises IntegrityError.
        """
        path = self._root / "comparisons" / str(number)
        try:
            text = read_text(path, own=True)
        except FileNotFoundError:
            return None
        path.unlink(missing_ok=True)
        return Comparison.from_json(text)

    def give_up(self, batch: int, author: str, *, start: int) -> None:
        """Makes the binding of a batch void from batch `start` on. Raises ConflictError if it is void already."""
        fields = {"from": start, "reason": f"withdrawn by {author}", "returned_ms": time.time_ns() // 1_000_000}
        if not self._withdrawn("returns", batch, json.dumps(fields)):
            raise ConflictError(f"the modifications that came with batch {batch} are withdrawn already")

    def withdraw(self, number: int, author: str) -> None:
        """Raises ConflictError if a driver has decided about the record before."""
        text = json.dumps({"withdrawn": True, "refused": f"withdrawn by {author}"})
        created = self._withdrawn("outcomes", number, text)
        time.sleep(SETTLE_S)
        if not created or self._text("outcomes", number) != text:
            raise ConflictError(f"modification {number} is checked already; `rhino modify remove` takes it out again")

    def _withdrawn(self, kind: str, number: int, text: str) -> bool:
        failpoints.hit("modification.withdraw.before")
        created = create_fact(self._own_folder(kind), number, text)
        failpoints.hit("modification.withdraw.after")
        return created

    def _compare(self, texts: Mapping[int, str], digests: Iterable[tuple[int, str]]) -> None:
        """Raises IntegrityError if a record is missing, or is not the one checked by the driver."""
        for number, digest in digests:
            why = "is missing" if number not in texts else ""
            if digest and not why and hashlib.sha256(texts[number].encode()).hexdigest() != digest:
                why = "is not the record that the driver has checked: its SHA-256 is another one"
            if why:
                raise IntegrityError(f"{self._root / 'records' / str(number)} {why}; restore it from a backup")

    def _own_folder(self, kind: str) -> Path:
        folder = self._root / kind
        make_folder(folder)
        require_closed(folder)
        return folder

    def _numbers(self, kind: str) -> list[int]:
        return numbers(self._root / kind)

    def _text(self, kind: str, number: int) -> str:
        return read_text(self._root / kind / str(number), own=True)

    def _facts(self, kind: str, parse: Callable[[int, dict[str, Any]], T]) -> dict[int, T]:
        found = {}
        for number in self._numbers(kind):
            path = self._root / kind / str(number)
            fields = read_json(path, own=True)
            with reading(path):
                found[number] = parse(number, fields)
        return found


def _judged(batch: int, fields: dict[str, Any]) -> Judged:
    figures = Figures(int(fields["batch_ms"]), {str(name): int(count) for name, count in fields["rows"].items()})
    return Judged(figures, {int(number): int(left) for number, left in fields["trials"].items()})


def _return(batch: int, fields: dict[str, Any]) -> Return:
    return Return(int(fields.get("from", batch)), str(fields["reason"]))


def _binding(batch: int, fields: dict[str, Any]) -> tuple[Binding, list[tuple[int, str]]]:
    """Also the SHA-256 of each record. "": bound by a former driver that did not write it."""
    records = tuple(int(number) for number in fields["records"])
    digests = [str(digest) for digest in fields.get("sha256", [""] * len(records))]
    binding = Binding(records, tuple(int(number) for number in fields["replaces"]))
    return binding, list(zip(records, digests, strict=True))


def _outcome(number: int, fields: dict[str, Any]) -> tuple[Findings, str]:
    """Also the SHA-256 of an accepted record, else ""."""
    outcome = Findings(str(fields.get("refused", "")), bool(fields.get("withdrawn", False)))
    return outcome, str(fields.get("sha256", ""))
