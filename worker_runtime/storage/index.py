"""The sidecar's durable memory: which files are stored, epochs seen, floors, the store's identity; kept in RocksDB.

Keys: ``f/<store path>\\0<name>`` file records, ``e/<group>`` epochs, ``l/<store path>`` floors, ``d/<job>``
durabilities, ``m/<key>`` the rest. Writes reach the operating system before they return, so they survive kill -9 of the
process; `sync` makes them survive a loss of power as well.
"""

from __future__ import annotations

import errno
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from rocksdict import DBCompressionType, Options, Rdict, WriteBatch

from rhino.errors import AlreadyThereError
from rhino.ids import Durability, Epoch, FileEntry, GroupId, StoreId, Version
from worker_runtime.storage.files import Seal


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file in the store. `received`: from another worker; else an executor of this one wrote it."""

    entry: FileEntry
    seal: Seal
    arrived_ns: int  # wall clock, nanoseconds since the epoch
    visible: bool
    received: bool


class Index:
    """One RocksDB; a second process that opens it fails, which keeps two sidecars off one data folder."""

    def __init__(self, path: Path) -> None:
        options = Options(raw_mode=True)
        options.create_if_missing(True)
        options.set_compression_type(DBCompressionType.none())
        options.set_keep_log_file_num(2)
        options.set_max_total_wal_size(16 * 1024 * 1024)
        try:
            self._db = Rdict(str(path), options=options)
        except Exception as error:  # the binding knows no narrower class
            if "lock" in str(error).lower():
                raise AlreadyThereError(f"{path}: another sidecar has this data folder open") from error
            raise

    def close(self) -> None:
        self._db.close()

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
        value = self._db.get(f"m/{key}".encode())
        return None if value is None else value.decode()

    def _scan(self, prefix: bytes) -> Iterator[tuple[str, bytes]]:
        for key, value in self._db.items(from_key=prefix):
            if not key.startswith(prefix):
                return
            yield key[len(prefix) :].decode(), value


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
        ]
    ).encode()


def _decode(store: StoreId, name: str, value: bytes) -> StoredFile:
    size, crc, lineage, references, written_by, seal, arrived_ns, visible, received = json.loads(value)
    entry = FileEntry(
        store,
        name,
        size,
        crc,
        lineage=tuple(Version(*v) for v in lineage),
        references=tuple(references),
        written_by=written_by,
    )
    return StoredFile(entry, Seal(*seal), arrived_ns, visible, received)
