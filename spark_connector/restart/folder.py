"""The folder `restarts` of a query checkpoint.

requests/<number>, answers/<number> and ends/<number> are facts: written once, atomically. locks/run is the right to run
the query, and locks/<number> says that the application of a request lives. The driver's JVM has these locks (Scala:
RunLocks); this module only looks who has one.
"""

from __future__ import annotations

import fcntl
import json
import os
import struct
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rhino_core import failpoints
from rhino_core.errors import ConflictError, IntegrityError
from spark_connector.facts import create_fact
from spark_connector.restart.core import Answer, End, Restart

TRIES = 100  # others may take the same number
RIGHT = "run"
UNSUPERVISED = "unsupervised"  # as in Gate.scala
_FLOCK = "hhqqi4x"  # struct flock of Linux: type, whence, start, length, pid


class RestartFolder:
    """`checkpoint`: the folder of a query checkpoint, which need not exist yet."""

    def __init__(self, checkpoint: Path) -> None:
        self.path = checkpoint / "restarts"
        self.rehearsals = self.path / "rehearsals"

    # ---- facts

    def read(self) -> tuple[Restart, ...]:
        """Returns all restarts by number. Raises IntegrityError if a file is not readable."""
        answers, ends = dict(self._facts("answers")), dict(self._facts("ends"))
        found = []
        for number in sorted(self._numbers("requests")):
            answer, end = answers.get(number, {}), ends.get(number, {})
            found.append(
                Restart(
                    number,
                    Answer(answer["answer"]) if answer else None,
                    End(end["end"]) if end else None,
                    str(end.get("reason") or answer.get("reason") or ""),
                )
            )
        return tuple(found)

    def ask(self, author: str) -> int:
        """Writes a new request and returns its number. Raises ConflictError if others write without end."""
        for _ in range(TRIES):
            number = max(self._numbers("requests"), default=0) + 1
            if self._create("request", number, {"author": author}):
                return number
        raise ConflictError(f"{self.path}: others ask for restarts all the time; try again")

    def asked(self, number: int) -> tuple[str, int]:
        """Returns who has asked, and when, in milliseconds of the wall clock."""
        fields = self._fact(self.path / "requests" / str(number))
        return str(fields.get("author", "")), int(fields.get("at_ms", 0))

    def answer(self, number: int, answer: Answer, reason: str = "") -> bool:
        """Returns False if there is an answer already."""
        return self._create("answer", number, {"answer": answer, "reason": reason})

    def end(self, number: int, end: End, reason: str = "") -> bool:
        """Returns False if there is an end already."""
        return self._create("end", number, {"end": end, "reason": reason})

    def belongs_to_user(self, number: int) -> bool:
        """Whether this process's user has written the request. Only this user may stop the query."""
        return (self.path / "requests" / str(number)).stat().st_uid == os.getuid()

    def open_requests(self) -> list[int]:
        """Returns those without an answer, the oldest first."""
        return sorted({*self._numbers("requests")} - {*self._numbers("answers")})

    def committed(self) -> list[int]:
        """Returns the batches in Spark's commit log. None of a query that has never run."""
        commits = self.path.parent / "commits"
        return [int(name) for name in os.listdir(commits) if name.isdigit()] if commits.is_dir() else []

    # ---- locks

    def lock(self, name: str) -> Path:
        """`name`: RIGHT, or the number of a request."""
        return self.path / "locks" / name

    def lives(self, number: int) -> bool:
        """Whether the application of a request has its lock."""
        return is_locked(self.lock(str(number)))

    def owned(self) -> bool:
        """Whether any process has the right to run."""
        return is_locked(self.lock(RIGHT))

    def owner(self) -> str:
        """Returns who has written last that it has the right to run, for people."""
        fields = self._owner()
        if not fields:
            return "another process"
        return f"process {fields['pid']} of user {fields['user']} on {fields['host']}"

    def owner_is_supervised(self) -> bool:
        return self._owner().get("says") != UNSUPERVISED

    def _owner(self) -> dict[str, Any]:
        """Empty while it is being written."""
        try:
            fields: dict[str, Any] = json.loads(self.lock(RIGHT).read_text())
            return fields
        except (OSError, ValueError):
            return {}

    # ---- files

    def _create(self, step: str, number: int, fields: Mapping[str, str]) -> bool:
        failpoints.hit(f"restart.{step}.before")
        text = json.dumps({**fields, "at_ms": time.time_ns() // 1_000_000})
        created = create_fact(self.path / f"{step}s", number, text)
        failpoints.hit(f"restart.{step}.after")
        return created

    def _numbers(self, kind: str) -> list[int]:
        folder = self.path / kind
        return [int(name) for name in os.listdir(folder) if name.isdigit()] if folder.is_dir() else []

    def _facts(self, kind: str) -> Iterator[tuple[int, dict[str, Any]]]:
        for number in self._numbers(kind):
            yield number, self._fact(self.path / kind / str(number))

    def _fact(self, path: Path) -> dict[str, Any]:
        try:
            fields: dict[str, Any] = json.loads(path.read_text())
        except ValueError as error:
            raise IntegrityError(f"{path} is not readable: {error}") from error
        return fields


def is_locked(path: Path) -> bool:
    """Whether another process has the lock. It is not taken, not even for a moment."""
    try:
        with path.open("rb") as file:
            asked = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
            kind: int = struct.unpack(_FLOCK, fcntl.fcntl(file, fcntl.F_GETLK, asked))[0]
            return kind != fcntl.F_UNLCK
    except FileNotFoundError:
        return False
