"""The sidecar's index in RocksDB: stored files, epochs, floors and the identity of the store.

Keys (parts joined by `+` are separated by a NUL byte):
- `f/<store path>` + `<name>`: file records
- `e/<group>`: epochs
- `l/<store path>`: floors
- `d/<job>`: durabilities
- `g/<job>`: fences of forgotten jobs
- `v/<store path>` + `<checkpoint id>`: versions 1 that had a snapshot
- `n/<store path>` + `<version>`: the preceding version in long lineages (lineages.py)
- `w/...`: the journal of the cluster's managers, if this is one of its witnesses (witnessed.py)
- `m/<key>`: everything else

Values are lists to which a newer Rhino may append; unknown items are ignored. Writes reach the operating system before
they return, so they survive kill -9 of the process. `sync` makes them survive a power loss as well. An index that has
lost records does not open (database.py).
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from rocksdict import WriteBatch

from rhino_core.epochs import is_possible
from rhino_core.failpoints import hit
from rhino_core.ids import Durability, Epoch, FileKind, GroupId, StoreId, Version, is_safe, parse_name
from rhino_core.records import known_value
from worker_runtime.storage.disk.disk import Disk
from worker_runtime.storage.index.database import Database, ReadOnlyDatabase
from worker_runtime.storage.index.lineages import Lineages
from worker_runtime.storage.index.stored_file import StoredFile, decode, encode

log = logging.getLogger(__name__)


class IndexReader:
    """Reads an index. Raises IntegrityError for unreadable records."""

    def __init__(self, entries: ReadOnlyDatabase) -> None:
        self._entries = entries
        self._lineages = Lineages()

    def close(self) -> None:
        self._entries.close()

    def files(self) -> Iterator[StoredFile]:
        for key, value in self._entries.scan(b"n/"):
            path, _, version = key.partition("\0")
            number, _, checkpoint_id = version.partition("_")
            if (store := self._store_of(path)) is not None:
                self._lineages.load(store, Version(int(number), checkpoint_id), value)
        for key, value in self._entries.scan(b"f/"):
            path, _, name = key.partition("\0")
            if (store := self._store_of(path)) is not None:
                yield decode(store, name, value, self._lineages)
        self._lineages.loaded()

    def first_snapshots(self) -> Iterator[tuple[StoreId, Version]]:
        """Versions 1 whose snapshot is no longer here."""
        for key, _ in self._entries.scan(b"v/"):
            path, _, checkpoint_id = key.partition("\0")
            if (store := self._store_of(path)) is not None:
                yield store, Version(1, checkpoint_id)

    def fences(self) -> dict[str, Epoch]:
        found = (
            (job, self._epoch_of(f"g/{job}", value)) for job, value in self._entries.scan(b"g/") if self._known(job)
        )
        return {job: epoch for job, epoch in found if epoch is not None}

    def epochs(self) -> dict[GroupId, Epoch]:
        found = ((self._group_of(key), self._epoch_of(f"e/{key}", value)) for key, value in self._entries.scan(b"e/"))
        return {group: epoch for group, epoch in found if group is not None and epoch is not None}

    def members(self) -> dict[GroupId, list[str]]:
        """Worker ids of the members under these epochs."""
        found = ((self._group_of(key), json.loads(value)[2:]) for key, value in self._entries.scan(b"e/"))
        return {group: list(filter(is_safe, members)) for group, members in found if group is not None}

    def floors(self) -> dict[StoreId, Version]:
        found = ((self._store_of(key), value) for key, value in self._entries.scan(b"l/"))
        return {store: Version(*json.loads(value)[:2]) for store, value in found if store is not None}

    def durabilities(self) -> dict[str, Durability]:
        """A durability known only to a newer Rhino counts as the stronger one."""
        return {
            job: known_value(Durability, value.decode(), f"durability of job {job}", Durability.SYNCED)
            for job, value in self._entries.scan(b"d/")
        }

    def metadata(self, key: str) -> str | None:
        """The text stored under this key by `Index.put_metadata`, also before a restart."""
        value = self._entries.get(f"m/{key}".encode())
        return None if value is None else value.decode()

    def _known(self, key: str, parts: int = 1) -> list[str] | None:
        """The parts of a key.

        None, with a log entry, for an unsafe name: a version without checks of names may have stored it.
        """
        found = key.split("/")
        if len(found) == parts and all(map(is_safe, found)):
            return found
        log.error("a record of an unsafe name is left out", extra={"index": str(self._entries.path), "key": key})
        return None

    def _store_of(self, path: str) -> StoreId | None:
        parts = self._known(path, 4)
        return None if parts is None else StoreId(parts[0], int(parts[1]), int(parts[2]), parts[3])

    def _group_of(self, key: str) -> GroupId | None:
        parts = self._known(key, 3)
        return None if parts is None else GroupId(parts[0], int(parts[1]), int(parts[2]))

    def _epoch_of(self, key: str, value: bytes) -> Epoch | None:
        """None for an epoch that no manager can have issued: it would exceed all future epochs of the group."""
        epoch = Epoch(*json.loads(value)[:2])
        if is_possible(epoch):
            return epoch
        log.error(
            "an impossible epoch is left out",
            extra={"index": str(self._entries.path), "key": key, "epoch": list(epoch)},
        )
        return None


class Index(IndexReader):
    """The index, opened for writing. Records are small, so they are written at once, on the event loop.

    Every write survives kill -9 when it returns. Every write raises NoSpaceError or IntegrityError if the index cannot
    be written, and then has changed nothing. A second process fails to open the index, so two sidecars cannot share one
    data folder. Opening raises like `Database`.
    """

    def __init__(self, path: Path, disk: Disk, boot_id: str = "") -> None:
        self._db = Database(path, boot_id)
        self._disk = disk
        super().__init__(self._db)

    def failure(self) -> str:
        """Why the index cannot be read; empty if it can be."""
        try:
            self.metadata("health")
        except Exception as error:  # the binding has no narrower exception class
            return str(error) or type(error).__name__
        return ""

    # ------------------------------------------------------------ files

    def put_file(self, file: StoredFile) -> None:
        store, name = file.entry.store, file.entry.name
        lineage, pointers = self._lineages.encode(store, file.entry.lineage)
        key, value = _file_key(store, name), encode(file, lineage)
        if not pointers:
            self._put(f"{store}/{name}", key, value)
            return
        batch = WriteBatch(raw_mode=True)
        batch.put(key, value)
        for version, before in pointers:
            batch.put(_pointer_key(store, version), before)
        self._write(f"{store}/{name}", lambda: self._db.write(batch))
        self._lineages.written(store, pointers)

    def delete_files(self, store: StoreId, names: Iterable[str], oldest_base: int | None = 0) -> None:
        """Deletes the records of these files atomically.

        `oldest_base`: number of the oldest version in any remaining lineage; None if no lineage remains. The index
        still records the existence of a deleted snapshot of version 1 (`first_snapshots`).
        """
        batch = WriteBatch(raw_mode=True)
        for name in names:
            batch.delete(_file_key(store, name))
            kind, version = parse_name(name)
            if kind is FileKind.SNAPSHOT and version is not None and version.version == 1:
                batch.put(f"v/{store}\0{version.checkpoint_id}".encode(), b"")
        unused = self._lineages.below(store, oldest_base)
        for version in unused:
            batch.delete(_pointer_key(store, version))
        self._write(str(store), lambda: self._db.write(batch))
        self._lineages.dropped(store, unused)

    def has_long_lineages(self, store: StoreId) -> bool:
        return bool(self._lineages.below(store, None))

    def drop_job(self, job: str, fence: Epoch, groups: Iterable[GroupId], files: Iterable[tuple[StoreId, str]]) -> None:
        """Writes the job's fence, and deletes its durability, groups and files, atomically."""
        hit("store.drop_job.index.before")
        batch = WriteBatch(raw_mode=True)
        batch.put(f"g/{job}".encode(), json.dumps(fence).encode())
        batch.delete(f"d/{job}".encode())
        for group in groups:
            batch.delete(f"e/{group}".encode())
            for prefix in (f"v/{group}/", f"n/{group}/"):
                for key, _ in self._db.scan(prefix.encode()):
                    batch.delete(f"{prefix}{key}".encode())
        for store, name in files:
            batch.delete(_file_key(store, name))
            batch.delete(f"l/{store}".encode())
        self._write(f"job {job}", lambda: self._db.write(batch))
        hit("store.drop_job.index.after")

    # ------------------------------------------------------------ epochs, floors, jobs, metadata

    def put_epoch(self, group: GroupId, epoch: Epoch, members: Iterable[str] = ()) -> None:
        """Persist the epoch and its members' ids. If this raises, nothing may be done under the epoch."""
        hit("store.epoch.before")
        self._put(f"epoch of {group}", f"e/{group}".encode(), json.dumps([*epoch, *members]).encode())
        hit("store.epoch.after")

    def put_floor(self, store: StoreId, floor: Version) -> None:
        self._put(f"floor of {store}", f"l/{store}".encode(), json.dumps(floor).encode())

    def put_durability(self, job: str, durability: Durability) -> None:
        self._put(f"durability of job {job}", f"d/{job}".encode(), durability.value.encode())

    def put_metadata(self, key: str, value: str) -> None:
        self._put(key, f"m/{key}".encode(), value.encode())

    # ------------------------------------------------------------ journal of the managers (witnessed.py)

    def value(self, key: bytes) -> bytes | None:
        return self._db.get(key)

    def values(self, prefix: bytes) -> Iterator[tuple[str, bytes]]:
        """Keys without the prefix, in order, and their values."""
        return self._db.scan(prefix)

    def write_batch(self, what: str, batch: WriteBatch) -> None:
        self._write(what, lambda: self._db.write(batch))

    # ------------------------------------------------------------ writing (the first three as in database.py)

    def sync(self) -> None:
        self._db.sync()

    def sequence_number(self) -> int:
        return self._db.sequence_number()

    def on_disk(self, number: int) -> None:
        self._db.on_disk(number)

    def _put(self, what: str, key: bytes, value: bytes) -> None:
        self._write(what, lambda: self._db.put(key, value))

    def _write(self, what: str, write: Callable[[], None]) -> None:
        """Write. If a full disk had blocked the index and there is room again, reopen the index first."""
        try:
            write()
        except Exception as error:  # the binding has no narrower exception class
            if not self._disk.has_room_again(error):
                raise self._disk.index_error(error, what) from error
            try:
                self._db.reopen()
                log.warning("index reopened: the disk has room again")
                write()
            except Exception as again:
                raise self._disk.index_error(again, what) from again


def _file_key(store: StoreId, name: str) -> bytes:
    return f"f/{store}\0{name}".encode()


def _pointer_key(store: StoreId, version: Version) -> bytes:
    return f"n/{store}\0{version}".encode()
