"""The sidecar's durable memory: which files are stored, epochs seen, floors, the store's identity; kept in RocksDB.

Keys: ``f/<store path>\\0<name>`` file records, ``e/<group>`` epochs, ``l/<store path>`` floors, ``d/<job>``
durabilities, ``g/<job>`` fences of forgotten jobs, ``m/<key>`` the rest. Writes reach the operating system before they
return, so they survive kill -9 of the process; `sync` makes them survive a loss of power as well.
"""

from __future__ import annotations

import contextlib
import errno
import json
import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from rocksdict import AccessType, DBCompressionType, Options, Rdict, WriteBatch

from rhino.errors import AlreadyThereError, IntegrityError
from rhino.ids import Durability, Epoch, FileEntry, GroupId, StoreId, Version
from rhino.scan import scan
from worker_runtime.storage.files import Seal

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file in the store. `received`: from another worker; else an executor of this one wrote it."""

    entry: FileEntry
    seal: Seal
    arrived_ns: int  # wall clock, nanoseconds since the epoch
    visible: bool
    received: bool


class Index:
    """One RocksDB; a second process that opens it fails, which keeps two sidecars off one data folder.

    With `read_only_log_dir` it is opened for reading beside a running sidecar: as it was at this moment. RocksDB's own
    log goes into that folder.
    """

    def __init__(self, path: Path, read_only_log_dir: Path | None = None) -> None:
        self._path = path
        if read_only_log_dir is not None:
            options = Options(raw_mode=True)
            options.set_db_log_dir(str(read_only_log_dir))
            self._db = Rdict(str(path), options=options, access_type=AccessType.read_only())
            return
        self._db = self._open()

    def _open(self) -> Rdict:
        path, options = self._path, Options(raw_mode=True)
        options.create_if_missing(True)
        options.set_compression_type(DBCompressionType.none())
        options.set_keep_log_file_num(2)
        options.set_max_total_wal_size(16 * 1024 * 1024)
        try:
            return Rdict(str(path), options=options)
        except Exception as error:  # the binding knows no narrower class
            if "lock" in str(error).lower():
                raise AlreadyThereError(f"{path}: another sidecar has this data folder open") from error
            raise

    def close(self) -> None:
        """What was written is with the operating system already: a complaint of RocksDB is only noted."""
        try:
            self._db.close()
        except Exception as error:  # the binding knows no narrower class
            log.warning("index not closed cleanly", extra={"index": str(self._path), "error": str(error)})

    def reopen(self) -> None:
        """RocksDB takes no more writes after one that found the disk full; opened anew it does."""
        self.close()
        self._db = self._open()

    def put_file(self, file: StoredFile) -> None:
        self._db[_file_key(file.entry.store, file.entry.name)] = _encode(file)

    def delete_files(self, store: StoreId, names: Iterable[str]) -> None:
        """All at once: after a crash either all of them are gone or none."""
        batch = WriteBatch(raw_mode=True)
        for name in names:
            batch.delete(_file_key(store, name))
        self._db.write(batch)

    def files(self) -> Iterator[StoredFile]:
        for key, value in self._scan(b"f/"):
            path, _, name = key.partition("\0")
            yield _decode(_store_of(path), name, value)

    def put_epoch(self, group: GroupId, epoch: Epoch) -> None:
        self._db[f"e/{group}".encode()] = json.dumps(epoch).encode()

    def drop_job(self, job: str, fence: Epoch, groups: Iterable[GroupId], files: Iterable[tuple[StoreId, str]]) -> None:
        """The job's fence in, its groups and files out: all of it or nothing."""
        batch = WriteBatch(raw_mode=True)
        batch.put(f"g/{job}".encode(), json.dumps(fence).encode())
        for group in groups:
            batch.delete(f"e/{group}".encode())
        for store, name in files:
            batch.delete(_file_key(store, name))
            batch.delete(f"l/{store}".encode())
        self._db.write(batch)

    def fences(self) -> dict[str, Epoch]:
        return {job: Epoch(*json.loads(value)) for job, value in self._scan(b"g/")}

    def epochs(self) -> dict[GroupId, Epoch]:
        found = {}
        for key, value in self._scan(b"e/"):
            job, operator, partition = key.split("/")
            found[GroupId(job, int(operator), int(partition))] = Epoch(*json.loads(value))
        return found

    def put_floor(self, store: StoreId, floor: Version) -> None:
        self._db[f"l/{store}".encode()] = json.dumps(floor).encode()

    def floors(self) -> dict[StoreId, Version]:
        return {_store_of(key): Version(*json.loads(value)) for key, value in self._scan(b"l/")}

    def put_durability(self, job: str, durability: Durability) -> None:
        self._db[f"d/{job}".encode()] = durability.value.encode()

    def durabilities(self) -> dict[str, Durability]:
        return {job: Durability(value.decode()) for job, value in self._scan(b"d/")}

    def sync(self) -> None:
        """Everything put so far is on disk when it returns. For any thread; raises OSError."""
        try:
            self._db.flush_wal(True)
        except Exception as error:  # the binding knows no narrower class
            raise OSError(errno.EIO, f"the index cannot be synced: {error}") from error

    def put_meta(self, key: str, value: str) -> None:
        self._db[f"m/{key}".encode()] = value.encode()

    def meta(self, key: str) -> str | None:
        with self._readable():
            value = self._db.get(f"m/{key}".encode())
        return None if value is None else value.decode()

    def _scan(self, prefix: bytes) -> Iterator[tuple[str, bytes]]:
        entries = scan(self._db, prefix)
        while True:
            with self._readable():
                entry = next(entries, None)
            if entry is None or not entry[0].startswith(prefix):
                return
            yield entry[0][len(prefix) :].decode(), entry[1]

    @contextlib.contextmanager
    def _readable(self) -> Iterator[None]:
        """Raises IntegrityError: with half an index, recovery would delete the files that the other half names."""
        try:
            yield
        except Exception as error:  # the binding knows no narrower class
            raise IntegrityError(
                f"{self._path}: the index is damaged ({error}); move the data folder away to begin with an empty store "
                "that other workers fill again"
            ) from error


def _file_key(store: StoreId, name: str) -> bytes:
    return f"f/{store}\0{name}".encode()


def _store_of(path: str) -> StoreId:
    job, operator, partition, store = path.split("/")
    return StoreId(job, int(operator), int(partition), store)


def _encode(file: StoredFile) -> bytes:
    entry = file.entry
    return json.dumps(
        [
            entry.size_bytes,
            entry.crc32c,
            entry.lineage,
            entry.references,
            entry.written_by,
            [file.seal.size_bytes, file.seal.mtime_ns],
            file.arrived_ns,
            file.visible,
            file.received,
            *([entry.same_as] if entry.same_as else []),  # else as former versions wrote it, which they can read
        ]
    ).encode()


def _decode(store: StoreId, name: str, value: bytes) -> StoredFile:
    size, crc, lineage, references, written_by, seal, arrived_ns, visible, received, *rest = json.loads(value)
    entry = FileEntry(
        store,
        name,
        size,
        crc,
        lineage=tuple(Version(*v) for v in lineage),
        references=tuple(references),
        written_by=written_by,
        same_as=rest[0] if rest else "",
    )
    return StoredFile(entry, Seal(*seal), arrived_ns, visible, received)
