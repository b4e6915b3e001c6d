"""The folder `modifications` of a query checkpoint: one file for each fact, written once and atomically.

records/<number> and jars/<sha256>.jar are by `rhino modify`. tables/<number>, outcomes/<number>, bindings/<batch>,
returns/<batch>, figures/<batch> and comparisons/<number> are by the driver. Withdrawals are outcomes and returns, too.
A comparison may have values of rows, so it is removed when it has been read. Nothing here reads tables.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rhino_core import failpoints
from rhino_core.errors import ConflictError, IntegrityError
from spark_connector.facts import create_fact, replace_file
from spark_connector.modify.comparison import Comparison
from spark_connector.modify.jars import JarFunction
from spark_connector.modify.ledger import Figures, Ledger, Outcome, Return
from spark_connector.modify.record import Canary, Change, Record, Sample

TRIES = 100  # others may take the same number
SETTLE_S = 0.05  # a driver that was just about to decide has decided


class ModificationFolder:
    """`checkpoint`: an existing query checkpoint. Nothing is created before the first record."""

    def __init__(self, checkpoint: Path) -> None:
        self._root = checkpoint / "modifications"

    def read(self) -> Ledger:
        """Raises IntegrityError if a file is not readable."""
        return Ledger(
            {number: Record.from_json(number, path.read_text()) for number, path in self._files("records")},
            {
                number: Outcome(str(fields.get("refused", "")), bool(fields.get("withdrawn", False)))
                for number, fields in self._facts("outcomes")
            },
            {batch: tuple(fields["records"]) for batch, fields in self._facts("bindings")},
            {
                batch: Return(int(fields.get("from", batch)), str(fields["reason"]))
                for batch, fields in self._facts("returns")
            },
            {
                batch: Figures(int(fields["batch_ms"]), {name: int(count) for name, count in fields["rows"].items()})
                for batch, fields in self._facts("figures")
            },
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
        """Writes a new record and returns it. Raises ConflictError if others write without end."""
        for _ in range(TRIES):
            number = max((number for number, _ in self._files("records")), default=0) + 1
            record = Record(number, change, author, time.time_ns() // 1_000_000, dry_run, canary, sample)
            failpoints.hit("modification.record.before")
            if create_fact(self._root / "records", number, record.to_json()):
                failpoints.hit("modification.record.after")
                return record
        raise ConflictError(f"{self._root}: others add modifications all the time; try again")

    def keep_jar(self, function: JarFunction) -> None:
        """Puts the jar beside the records. A record that names it must come after it."""
        path = self._root / "jars" / f"{function.code.sha256}.jar"
        mine = path.is_file() and path.stat().st_uid == os.getuid()
        if mine and hashlib.sha256(path.read_bytes()).hexdigest() == function.code.sha256:
            return
        failpoints.hit("modification.jar.before")
        replace_file(path, function.content)
        failpoints.hit("modification.jar.after")

    def take_comparison(self, number: int) -> Comparison | None:
        """Returns what a dry run has found out, and removes it. None: there is none, or it has been taken.

        Raises IntegrityError.
        """
        path = self._root / "comparisons" / str(number)
        try:
            text = path.read_text()
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
        if not created or (self._root / "outcomes" / str(number)).read_text() != text:
            raise ConflictError(f"modification {number} is checked already; `rhino modify remove` takes it out again")

    def _withdrawn(self, kind: str, number: int, text: str) -> bool:
        failpoints.hit("modification.withdraw.before")
        created = create_fact(self._root / kind, number, text)
        failpoints.hit("modification.withdraw.after")
        return created

    def _files(self, kind: str) -> Iterator[tuple[int, Path]]:
        folder = self._root / kind
        paths = folder.iterdir() if folder.is_dir() else iter(())
        yield from ((int(path.name), path) for path in paths if path.name.isdigit())

    def _facts(self, kind: str) -> Iterator[tuple[int, dict[str, Any]]]:
        for number, path in self._files(kind):
            try:
                yield number, json.loads(path.read_text())
            except ValueError as error:
                raise IntegrityError(f"{path} is not readable: {error}") from error
