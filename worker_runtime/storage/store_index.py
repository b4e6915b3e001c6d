"""The index as the parts of a store write it: errors of RocksDB become Rhino's, and a full disk is survived."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from rhino_core.failpoints import hit
from rhino_core.ids import Durability, Epoch, GroupId, StoreId, Version
from worker_runtime.storage.disk import Disk
from worker_runtime.storage.index import Index, StoredFile

log = logging.getLogger(__name__)


class StoreIndex:
    """Reads and writes durable records. Records are small, so they are written at once, on the event loop.

    Every write survives kill -9 when it returns. Every write raises NoSpaceError or IntegrityError if the index cannot
    be written, and then has changed nothing.
    """

    def __init__(self, index: Index, disk: Disk) -> None:
        self._index = index
        self._disk = disk

    def close(self) -> None:
        self._index.close()

    # ------------------------------------------------------------ files

    def put_file(self, record: StoredFile) -> None:
        self._write(f"{record.entry.store}/{record.entry.name}", lambda: self._index.put_file(record))

    def delete_files(self, store: StoreId, names: Iterable[str], oldest_base: int | None = 0) -> None:
        """See `Index.delete_files`."""
        self._write(str(store), lambda: self._index.delete_files(store, names, oldest_base))

    def has_long_lineages(self, store: StoreId) -> bool:
        return self._index.has_long_lineages(store)

    def drop_job(self, job: str, fence: Epoch, groups: Iterable[GroupId], files: Iterable[tuple[StoreId, str]]) -> None:
        """See `Index.drop_job`."""
        hit("store.drop_job.index.before")
        self._write(f"job {job}", lambda: self._index.drop_job(job, fence, groups, files))
        hit("store.drop_job.index.after")

    # ------------------------------------------------------------ epochs, floors, jobs, metadata

    def epochs(self) -> dict[GroupId, Epoch]:
        return self._index.epochs()

    def put_epoch(self, group: GroupId, epoch: Epoch) -> None:
        """Persist the epoch. Nothing that depends on it may be done if this raises."""
        hit("store.epoch.before")
        self._write(f"epoch of {group}", lambda: self._index.put_epoch(group, epoch))
        hit("store.epoch.after")

    def fences(self) -> dict[str, Epoch]:
        """Forgotten jobs, each with the epoch below which nothing of the job counts."""
        return self._index.fences()

    def floors(self) -> dict[StoreId, Version]:
        return self._index.floors()

    def put_floor(self, store: StoreId, floor: Version) -> None:
        self._write(f"floor of {store}", lambda: self._index.put_floor(store, floor))

    def durabilities(self) -> dict[str, Durability]:
        return self._index.durabilities()

    def put_durability(self, job: str, durability: Durability) -> None:
        self._write(f"durability of job {job}", lambda: self._index.put_durability(job, durability))

    def metadata(self, key: str) -> str | None:
        """The text that `put_metadata` stored under this key, also before a restart."""
        return self._index.meta(key)

    def put_metadata(self, key: str, value: str) -> None:
        self._write(key, lambda: self._index.put_meta(key, value))

    def failure(self) -> str:
        """Why the index cannot be read; empty if it can be."""
        try:
            self._index.meta("health")
        except Exception as error:  # the binding has no narrower exception class
            return str(error) or type(error).__name__
        return ""

    # ------------------------------------------------------------ writing

    def sequence_number(self) -> int:
        """How much was written so far."""
        return self._index.sequence_number()

    def on_disk(self, written: int) -> None:
        """Everything written when `sequence_number` returned this number is on disk. Raises OSError."""
        self._index.on_disk(written)

    def _write(self, what: str, write: Callable[[], None]) -> None:
        """Write. If a full disk had blocked the index and there is room again, reopen the index first."""
        try:
            write()
        except Exception as error:  # the binding has no narrower exception class
            if not self._disk.has_room_again(error):
                raise self._disk.index_error(error, what) from error
            try:
                self._index.reopen()
                log.warning("index reopened: the disk has room again")
                write()
            except Exception as again:
                raise self._disk.index_error(again, what) from again
