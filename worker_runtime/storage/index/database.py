"""The RocksDB below the index.

It opens only if it is complete, and its writes are counted from then on (written.py).
"""

from __future__ import annotations

import contextlib
import errno
import logging
from collections.abc import Iterator
from pathlib import Path

from rocksdict import AccessType, DBCompressionType, Options, Rdict, WriteBatch

from rhino_core.errors import (
    AlreadyThereError,
    IntegrityError,
    InvalidSettingError,
    NoSpaceError,
    RhinoError,
    UnavailableError,
)
from rhino_core.rocksdb import bounded, scan
from worker_runtime.storage.disk.disk import NO_SPACE
from worker_runtime.storage.index.written import NAME, Written

log = logging.getLogger(__name__)
_LOCKED = ("lock hold by", "while lock file")  # locked by this process, or by another one
_NOT_OURS = ("permission denied", "read-only file system", "operation not permitted")
_IDENTITY = b"m/store_uuid"
_COUNTED = b"m/counted"  # set once the file of written.py exists


class ReadOnlyDatabase:
    """The database as it is now, even while another process has it open.

    RocksDB writes its own log into `log_dir`.
    """

    def __init__(self, path: Path, log_dir: Path | None = None) -> None:
        """Raises the exceptions of the RocksDB binding."""
        self.path = path
        options = Options(raw_mode=True)
        if log_dir is not None:
            options.set_db_log_dir(str(log_dir))
        self._db = Rdict(str(path), options=options, access_type=AccessType.read_only())

    def close(self) -> None:
        """Closes the database.

        An error of RocksDB is only logged: everything written has already reached the operating system.
        """
        try:
            self._db.close()
        except Exception as error:  # the binding has no narrower exception class
            log.warning("index not closed cleanly", extra={"index": str(self.path), "error": str(error)})

    def sequence_number(self) -> int:
        """How many entries were written so far."""
        return int(self._db.latest_sequence_number())

    def get(self, key: bytes) -> bytes | None:
        with self._readable():
            value: bytes | None = self._db.get(key)
        return value

    def scan(self, prefix: bytes) -> Iterator[tuple[str, bytes]]:
        """Entries with keys that start with `prefix`. The yielded keys omit the prefix."""
        entries = scan(self._db, prefix)
        while True:
            with self._readable():
                entry = next(entries, None)
            if entry is None or not entry[0].startswith(prefix):
                return
            yield entry[0][len(prefix) :].decode(), entry[1]

    @contextlib.contextmanager
    def _readable(self) -> Iterator[None]:
        """Raises IntegrityError: with half an index, recovery would delete the files of the other half."""
        try:
            yield
        except Exception as error:  # the binding has no narrower exception class
            raise _damaged(self.path, str(error)) from error


class Database(ReadOnlyDatabase):
    """The database, opened for writing.

    Raises IntegrityError, before it changes anything, if entries are lost or unreadable; AlreadyThereError if another
    process has it open; NoSpaceError, InvalidSettingError, UnavailableError.

    `boot_id`: if it differs from the one at the last write, unsynced entries may be gone. A separate file records how
    much was written (written.py). If it is missing, the database continues with the readable entries, and deletes the
    store's identity (`m/store_uuid`).
    """

    def __init__(self, path: Path, boot_id: str) -> None:
        self.path = path
        with _opening(path):
            self._written = Written(path / NAME, boot_id)
        try:
            with _opening(path):
                self._check_complete(self._written.required)
                self._db = _open(path)
                try:
                    self._begin()
                except BaseException:
                    super().close()
                    raise
        except BaseException:
            self._written.close()
            raise

    def _check_complete(self, required: int | None) -> None:
        """Reads all entries, changing nothing."""
        if required is None:
            raise _damaged(self.path, f"the file {NAME!r} in it has a wrong checksum")
        if not self._written.known and not (self.path / "CURRENT").exists():
            return  # a new database
        db = ReadOnlyDatabase(self.path)
        try:
            for _ in db.scan(b""):
                pass
            found = db.sequence_number()
        finally:
            db.close()
        if found < required:
            raise _damaged(self.path, f"{required} entries were written, {found} can be read")

    def _begin(self) -> None:
        """From now on, record how much is written."""
        counted = self.get(_COUNTED) is not None
        if counted and not self._written.known:
            log.warning("it is not known what the index has lost: new incarnation", extra={"index": str(self.path)})
            self._db.delete(_IDENTITY)
        self._written.begin(self.sequence_number())
        if not counted:
            self.put(_COUNTED, b"1")

    def put(self, key: bytes, value: bytes) -> None:
        self._db[key] = value
        self._written.record(self.sequence_number())

    def write(self, batch: WriteBatch) -> None:
        """Writes the batch atomically."""
        self._db.write(batch)
        self._written.record(self.sequence_number())

    def sync(self) -> None:
        """When this returns, everything written so far is on disk. Safe for any thread. Raises OSError."""
        number = self.sequence_number()
        try:
            self._db.flush_wal(True)
        except Exception as error:  # the binding has no narrower exception class
            raise OSError(errno.EIO, f"the index cannot be synced: {error}") from error
        self.on_disk(number)

    def on_disk(self, number: int) -> None:
        """Everything written up to this sequence number has been synced. Safe for any thread. Raises OSError."""
        self._written.synced(number)

    def reopen(self) -> None:
        """Reopen the database.

        After a write to a full disk, RocksDB accepts no more writes until it is reopened.
        """
        super().close()
        with _opening(self.path):
            self._db = _open(self.path)
            if self.sequence_number() < self._written.number:
                raise _damaged(self.path, "entries are gone since it was opened")

    def close(self) -> None:
        super().close()
        self._written.close()


def _open(path: Path) -> Rdict:
    options = bounded(raw_mode=True)
    options.create_if_missing(True)
    options.set_compression_type(DBCompressionType.none())
    options.set_max_total_wal_size(16 * 1024 * 1024)
    return Rdict(str(path), options=options)


@contextlib.contextmanager
def _opening(path: Path) -> Iterator[None]:
    """Translates errors of the system and of the binding into Rhino's errors. The binding has no narrower exception
    class.
    """
    try:
        yield
    except RhinoError:
        raise
    except BlockingIOError as error:
        raise _taken(path) from error
    except Exception as error:
        raise _error(path, str(error), of_system=isinstance(error, OSError)) from error


def _error(path: Path, why: str, *, of_system: bool) -> RhinoError:
    text = why.lower()
    if NO_SPACE in text:
        return NoSpaceError(f"{path}: the index cannot be opened: {why}; free disk space")
    if any(words in text for words in _LOCKED):
        return _taken(path)
    if "too many open files" in text:
        return UnavailableError(f"{path}: the index cannot be opened: {why}; raise the limit of open files")
    if of_system or any(words in text for words in _NOT_OURS):
        return InvalidSettingError(f"{path}: the index cannot be written: {why}; give a folder that can be written")
    return _damaged(path, why)


def _taken(path: Path) -> AlreadyThereError:
    return AlreadyThereError(f"{path}: another sidecar has this data folder open")


def _damaged(path: Path, why: str) -> IntegrityError:
    return IntegrityError(
        f"{path}: the index is damaged: {why}. Move the data folder away, or start with --empty-store, which deletes "
        "this worker's files: either way other workers send their copies. If there are no others, delete the file "
        f"{NAME!r} there, to go on with what can be read"
    )
