"""The folder `restarts` of a query checkpoint.

requests/<number>, answers/<number> and ends/<number> are facts: written once, atomically. locks/run is the right to run
the query, and locks/<number> proves a live application of a request. The driver's JVM has these locks (Scala:
RunLocks). This module looks for their owners, and a command takes the right to run while it decides about a stopped
query.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from query_evolution.replace.core import Answer, End, Restart
from rhino_core import failpoints
from rhino_core.errors import AccessDeniedError, ConflictError, IntegrityError
from rhino_core.foreign import numbers, read_bytes, read_json, reading
from spark_connector.facts import create_fact
from spark_connector.run_locks import RunLocks

T = TypeVar("T", Answer, End)
TRIES = 100  # others may take the same number
KEPT = 100  # restarts that are decided
NOT_GRANTED = (Answer.REFUSED, Answer.WITHDRAWN)


class RestartFolder(RunLocks):
    """`checkpoint`: the folder of a query checkpoint. It need not exist yet."""

    def __init__(self, checkpoint: Path) -> None:
        super().__init__(checkpoint)
        self.rehearsals = self.path / "rehearsals"
        self._read: dict[tuple[str, int], tuple[Any, str]] = {}

    # ---- facts

    def read(self) -> tuple[Restart, ...]:
        """Returns the kept restarts, by number.

        Raises IntegrityError if a file is not readable, and AccessDeniedError if another user could have written it.
        """
        found = []
        answers, ends = ({*numbers(self.path / kind)} for kind in ("answers", "ends"))
        for number in numbers(self.path / "requests"):  # last: `_forget` removes a request first
            with contextlib.suppress(FileNotFoundError):  # just removed
                answer, why = self._decided("answers", number, Answer) if number in answers else (None, "")
                end, why_ended = self._decided("ends", number, End) if number in ends else (None, "")
                found.append(Restart(number, answer, end, why_ended or why))
        return tuple(found)

    def ask(self, author: str) -> int:
        """Writes a new request and returns its number. Raises ConflictError if others write without end."""
        for _ in range(TRIES):
            asked = numbers(self.path / "requests")
            number = max(asked, default=0) + 1
            if self._create("request", number, {"author": author}):
                if old := [one for one in asked if one <= number - KEPT]:
                    self._forget(old)
                return number
        raise ConflictError(f"{self.path}: others ask for restarts all the time; try again")

    def asked(self, number: int) -> tuple[str, int]:
        """Returns the asker and the time in milliseconds of the wall clock. Raises IntegrityError."""
        path = self.path / "requests" / str(number)
        fields = read_json(path)
        with reading(path):
            return str(fields.get("author", "")), int(fields.get("at_ms", 0))

    def answer(self, number: int, answer: Answer, reason: str = "") -> bool:
        """Returns False if there is an answer already."""
        return self._create("answer", number, {"answer": answer, "reason": reason})

    def end(self, number: int, end: End, reason: str = "") -> bool:
        """Returns False if there is an end already."""
        return self._create("end", number, {"end": end, "reason": reason})

    def refusal(self, number: int) -> str:
        """Returns why this process's user has not written the request, or not only they, else "".

        Only this user may stop the query.
        """
        try:
            read_bytes(self.path / "requests" / str(number), own=True)
        except (AccessDeniedError, IntegrityError) as error:
            return str(error)
        return ""

    def open_requests(self) -> list[int]:
        """Returns those without an answer, the oldest first."""
        return sorted({*numbers(self.path / "requests")} - {*numbers(self.path / "answers")})

    def committed(self) -> list[int]:
        """Returns the batches in Spark's commit log. None of a query without a run."""
        return numbers(self.path.parent / "commits")

    # ---- files

    def _create(self, step: str, number: int, fields: Mapping[str, str]) -> bool:
        failpoints.hit(f"restart.{step}.before")
        text = json.dumps({**fields, "at_ms": time.time_ns() // 1_000_000})
        created = create_fact(self.path / f"{step}s", number, text)
        failpoints.hit(f"restart.{step}.after")
        return created

    def _decided(self, kind: str, number: int, answers: type[T]) -> tuple[T, str]:
        """Returns the content of a fact, and its reason. It is written once, so it is read once."""
        found = self._read.get((kind, number))
        if found is None:
            path = self.path / kind / str(number)
            fields = read_json(path, own=True)
            with reading(path):
                found = answers(fields[kind.removesuffix("s")]), str(fields.get("reason") or "")
            self._read[kind, number] = found
        return found

    def _forget(self, old: list[int]) -> None:
        """Removes decided restarts. The request goes first: nobody knows the restart without it."""
        decided = [one for one in self.read() if one.number in old and (one.end or one.answer in NOT_GRANTED)]
        for restart in decided:
            for kind in ("requests", "answers", "ends", "locks"):
                (self.path / kind / str(restart.number)).unlink(missing_ok=True)
