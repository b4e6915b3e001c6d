"""The manager's durable log: a small key/value store on RocksDB. Every write is synced before it returns."""

from __future__ import annotations

import json
import logging
import os
import re
import struct
import time
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from rocksdict import AccessType, Options, Rdict, WriteBatch, WriteOptions

from rhino_core.epochs import issued_ceiling
from rhino_core.errors import (
    IntegrityError,
    InvalidSettingError,
    LocalProtocolError,
    NoSpaceError,
    PreconditionError,
    RhinoError,
    UnavailableError,
)
from rhino_core.failpoints import hit
from rhino_core.rocksdb import bounded, scan

_LAYOUT = struct.Struct(">QI")  # the number, and the CRC-32 of its eight bytes


class Acknowledged:
    """A counter in a small file beside the journal, updated in place after each write of the journal.

    When `note` returns, the operating system has the bytes. The counter therefore survives the end of the process.
    After a power loss it may be too small, but never too large.
    """

    def __init__(self, path: Path) -> None:
        """Creates the file if necessary. Raises OSError."""
        new = not path.exists()
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        if new:
            self.record(0)
            os.fsync(self._file)

    def record(self, number: int) -> None:
        text = struct.pack(">Q", number)
        os.pwrite(self._file, _LAYOUT.pack(number, zlib.crc32(text)), 0)

    def close(self) -> None:
        os.close(self._file)


def acknowledged(path: Path) -> int | None:
    """Returns the number. 0: no number is known, because somebody has deleted the file. None: the file is damaged."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return 0
    if not any(data):
        return 0  # created just before a power loss
    if len(data) != _LAYOUT.size:
        return None
    number, crc = _LAYOUT.unpack(data)
    return int(number) if zlib.crc32(data[:8]) == crc else None


log = logging.getLogger(__name__)
GENERATION = "generation"
SETTLED = "settled"
_WRITES = "writes"  # number of writes; each batch updates it
_KEY_PREFIX = "k/"
_ACKNOWLEDGED = "acknowledged"
_TAKEN = re.compile(r"lock hold by|While lock file")  # by this process; by another process
_FULL = re.compile(r"No space left|[Qq]uota exceeded")


class Journal:
    """JSON values, or bytes, under string keys. Raises UnavailableError while another process has the journal open.

    `generation` identifies one opening of the journal. Every open raises it and syncs it before anything uses it. The
    first generation is the wall clock in milliseconds. So it is above every generation of a lost former journal: the
    former one began with an earlier time, and was opened less often than once per millisecond.

    An empty journal is accepted only with `bootstrap`; otherwise PreconditionError is raised. Without this check a
    manager that lost its disk would place all groups anew. The journal is `fresh` from then until `settle`, also over
    restarts: the workers of a former journal may not have registered yet.

    RocksDB treats a damaged record of its log as the incomplete end after a killed process: it drops this record and
    all later ones. To detect this, the journal counts its writes and stores the count in a separate file. If it has
    fewer writes than were acknowledged, or cannot be read, IntegrityError is raised before anything is changed.
    """

    def __init__(self, path: Path, *, bootstrap: bool = False) -> None:
        self._path = path
        expected = acknowledged(path / _ACKNOWLEDGED)
        known = expected != 0 or (path / "CURRENT").exists()
        if not (known or bootstrap):
            raise self._empty()
        path.mkdir(parents=True, exist_ok=True)
        if known:
            self._check_complete(expected)
        self._db = _open(path)
        self._sync = WriteOptions()
        self._sync.sync = True
        previous = self._db.get(GENERATION)
        if previous is None and not bootstrap:
            self._db.close()
            raise self._empty()
        self._writes = int(self._db.get(_WRITES) or 0)
        self.failure = ""  # why the newest write failed; empty: it did not
        self.fresh = self._db.get(SETTLED) is None
        self.generation = _next_generation(path, None if previous is None else int(previous))
        hit("journal.generation.before")
        try:
            self._acknowledged = Acknowledged(path / _ACKNOWLEDGED)
            self._write({GENERATION: self.generation})
        except Exception as error:  # rocksdict raises nothing narrower
            raise _not_writable(path, error) from error
        hit("journal.generation.after")

    def _check_complete(self, expected: int | None) -> None:
        """Reads the whole journal without changing it. `expected`: number of acknowledged writes; None: unreadable."""
        if expected is None:
            raise self._damaged(f"the file {_ACKNOWLEDGED!r} in it has a wrong checksum")
        try:
            db = Rdict(str(self._path), Options(raw_mode=False), access_type=AccessType.read_only())
            found = int(dict(scan(db)).get(_WRITES) or 0)
            db.close()
        except Exception as error:  # rocksdict raises nothing narrower
            raise self._damaged(str(error)) from error
        if found < expected:
            raise self._damaged(f"{expected} writes were acknowledged, {found} can be read")

    def _empty(self) -> PreconditionError:
        return PreconditionError(
            f"the journal in {self._path} is empty: start with --bootstrap if this is a new deployment, or restore the "
            "folder of the former manager"
        )

    def _damaged(self, why: str) -> IntegrityError:
        return IntegrityError(
            f"the journal in {self._path} is damaged: {why}. Restore the folder from a copy of this journal; or delete "
            f"the file {_ACKNOWLEDGED!r} in it to go on with what can be read; or move the folder away and start with "
            "--bootstrap: sidecars report what they hold, but forgotten jobs, draining marks and handovers are gone"
        )

    @property
    def silent_witnesses(self) -> tuple[str, ...]:
        """Addresses. A journal on a disk has none."""
        return ()

    def write(self, values: Mapping[str, Any], gone: Iterable[str] = (), *, generation: int = 0) -> None:
        """Writes all values, deletes the keys in `gone` and raises the generation, atomically and with one sync.

        Durable on return. `generation`: seen by a sidecar under a lost journal; afterwards this journal's generation is
        at least as high. Raises LocalProtocolError for a generation that no manager can have issued.
        """
        if generation > issued_ceiling():  # no later start of a manager could exceed it
            raise LocalProtocolError(f"generation {generation}: is not to be journalled, no manager can have issued it")
        batch: dict[str, Any] = {_KEY_PREFIX + key: _stored(value) for key, value in values.items()}
        deleted = [_KEY_PREFIX + key for key in gone]
        raised = generation > self.generation
        if not batch and not deleted and not raised:
            return
        hit("journal.write.before")
        if raised:
            hit("journal.raise_generation.before")
            batch[GENERATION] = generation
        self._write(batch, deleted)
        if raised:
            self.generation = generation
            hit("journal.raise_generation.after")
        hit("journal.write.after")

    def settle(self) -> None:
        """The sidecars' whole knowledge of a former journal is here by now: the next opening is not fresh."""
        self._write({SETTLED: True})

    def _write(self, values: Mapping[str, Any], gone: Iterable[str] = ()) -> None:
        """Writes one batch, syncs it and counts it."""
        batch = WriteBatch()
        for key, value in values.items():
            batch.put(key, value)
        for key in gone:
            batch.delete(key)
        batch.put(_WRITES, self._writes + 1)
        try:
            self._db.write(batch, self._sync)
            self._writes += 1
            self._acknowledged.record(self._writes)
        except Exception as error:  # rocksdict raises nothing narrower
            self.failure = str(error) or type(error).__name__
            raise
        self.failure = ""

    def get(self, key: str) -> Any:
        """Returns the value, or None."""
        stored = self._get(_KEY_PREFIX + key)
        return None if stored is None else _read(stored)

    def items(self, prefix: str = "") -> Iterator[tuple[str, Any]]:
        """Yields the keys with this `prefix`, in order, with their values."""
        start = _KEY_PREFIX + prefix
        for key, stored in self._scan(start):
            yield key.removeprefix(_KEY_PREFIX), _read(stored)

    def _get(self, key: str) -> Any:
        return self._db.get(key)

    def _scan(self, start: str) -> Iterator[tuple[str, Any]]:
        """Yields the keys with this start, in order."""
        for key, stored in scan(self._db, start):
            if not str(key).startswith(start):
                return
            yield str(key), stored

    def close(self) -> None:
        self._db.close()
        self._acknowledged.close()


def _stored(value: Any) -> str | bytes:
    return value if isinstance(value, bytes) else json.dumps(value)


def _read(stored: Any) -> Any:
    return stored if isinstance(stored, bytes) else json.loads(str(stored))


def _next_generation(path: Path, previous: int | None) -> int:
    """Returns the previous generation plus one. Without a possible previous one, returns the clock in milliseconds."""
    if previous is not None and 0 <= previous < issued_ceiling():
        return previous + 1
    if previous is not None:
        extra = {"journal": str(path), "generation": previous}
        log.error("the journal's generation is impossible: beginning anew by the clock", extra=extra)
    return time.time_ns() // 1_000_000


def _open(path: Path) -> Rdict:
    try:
        return Rdict(str(path), bounded(raw_mode=False))
    except Exception as error:  # rocksdict raises nothing narrower
        if _TAKEN.search(str(error)):
            raise UnavailableError(f"the journal in {path} is open: another manager is running on it") from error
        raise _not_writable(path, error) from error


def _not_writable(path: Path, error: Exception) -> RhinoError:
    if _FULL.search(str(error)):
        return NoSpaceError(f"no space for the journal in {path}: {error}")
    return InvalidSettingError(f"the journal in {path} cannot be written: {error}; give a folder that can be written")
