"""The manager's durable log: a small key/value store on RocksDB whose writes are synced before they return."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from rocksdict import Options, Rdict, WriteBatch, WriteOptions

from rhino.errors import PreconditionError, UnavailableError
from rhino.failpoints import hit
from rhino.scan import scan

_GENERATION = "generation"
_KEY_PREFIX = "k/"


class Journal:
    """JSON values under string keys. One process at a time: UnavailableError while another one has it open.

    `generation` is the number of this life of the journal: raised and synced at every open before anything uses it.
    An empty journal must be meant (`bootstrap`), or PreconditionError: a manager that has lost its disk would
    otherwise place everything anew. Its first generation is the wall clock in milliseconds: above all that a former
    journal can have had, which began with an earlier time and was opened less than once a millisecond since.
    """

    def __init__(self, path: Path, *, bootstrap: bool = False) -> None:
        path.mkdir(parents=True, exist_ok=True)
        self._db = _open(path)
        self._sync = WriteOptions()
        self._sync.sync = True
        self._db.set_write_options(self._sync)
        previous = self._db.get(_GENERATION)
        if previous is None and not bootstrap:
            self._db.close()
            raise PreconditionError(
                f"the journal in {path} is empty: start with --bootstrap if this is a new deployment, or restore the "
                "folder of the former manager"
            )
        self.fresh = previous is None
        self.generation = time.time_ns() // 1_000_000 if previous is None else int(previous) + 1
        hit("journal.generation.before")
        self._db[_GENERATION] = self.generation
        hit("journal.generation.after")

    def raise_generation(self, at_least: int) -> int:
        """Makes the generation at least this (what a sidecar has seen of a lost journal); returns it."""
        if at_least > self.generation:
            hit("journal.raise_generation.before")
            self._db[_GENERATION] = at_least
            hit("journal.raise_generation.after")
            self.generation = at_least
        return self.generation

    def put(self, key: str, value: Any) -> None:
        """On disk when it returns."""
        hit("journal.put.before")
        self._db[_KEY_PREFIX + key] = json.dumps(value)
        hit("journal.put.after")

    def put_all(self, values: Mapping[str, Any], gone: Iterable[str] = ()) -> None:
        """All of them or none, with one sync: on disk when it returns. Keys in `gone` are deleted."""
        gone = tuple(gone)
        if not values and not gone:
            return
        batch = WriteBatch()
        for key, value in values.items():
            batch.put(_KEY_PREFIX + key, json.dumps(value))
        for key in gone:
            batch.delete(_KEY_PREFIX + key)
        hit("journal.put_all.before")
        self._db.write(batch, self._sync)
        hit("journal.put_all.after")

    def get(self, key: str) -> Any:
        """The value, or None."""
        text = self._db.get(_KEY_PREFIX + key)
        return None if text is None else json.loads(str(text))

    def delete(self, key: str) -> None:
        if _KEY_PREFIX + key in self._db:
            hit("journal.delete.before")
            del self._db[_KEY_PREFIX + key]
            hit("journal.delete.after")

    def items(self, prefix: str = "") -> Iterator[tuple[str, Any]]:
        """Keys that begin with `prefix`, in order, with their values."""
        start = _KEY_PREFIX + prefix
        for key, text in scan(self._db, start):
            if not str(key).startswith(start):
                return
            yield str(key).removeprefix(_KEY_PREFIX), json.loads(str(text))

    def close(self) -> None:
        self._db.close()


def _open(path: Path) -> Rdict:
    try:
        return Rdict(str(path), Options(raw_mode=False))
    except Exception as error:  # rocksdict raises nothing narrower
        raise UnavailableError(
            f"cannot open the journal in {path}: is another manager running on it? {error}"
        ) from error
