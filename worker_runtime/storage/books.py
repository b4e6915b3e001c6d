"""What a store knows: the catalogue and records of its files, epochs, floors and memos, in memory and in the index.

Changed on the event loop only. Order of a new file: bytes, rename, index, sync (`synced` jobs), catalogue, and only
then may anybody be told (kill -9 at any moment loses nothing acknowledged).
"""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

from rhino.errors import RhinoError
from rhino.failpoints import hit
from rhino.ids import Epoch, FileEntry, GroupId, StoreId, StoreVersion, Version
from worker_runtime.core.closure import Catalogue, changelog_name, kept_names, raise_floor, snapshot_name
from worker_runtime.storage import files
from worker_runtime.storage.disk import Disk
from worker_runtime.storage.files import Layout
from worker_runtime.storage.index import Index, StoredFile

log = logging.getLogger(__name__)
Key = tuple[StoreId, str]


class Books:
    """Answers at once and writes the index at once: records are small."""

    def __init__(self, worker_id: str, layout: Layout, index: Index, disk: Disk) -> None:
        self.layout = layout
        self.disk = disk
        self.catalogue = Catalogue()
        self._worker_id = worker_id
        self._index = index
        self._records: dict[Key, StoredFile] = {}
        self._group_bytes: Counter[GroupId] = Counter()
        self._floors: dict[StoreId, Version] = index.floors()
        self._held: dict[StoreId, Version | None] = {}  # the newest, of stores that have not changed since
        self._own: dict[StoreId, Version | None] = {}  # newest written here, until something own changes

    # ------------------------------------------------------------ files

    def record(self, store: StoreId, name: str) -> StoredFile | None:
        return self._records.get((store, name))

    def path(self, entry: FileEntry) -> Path:
        return self.layout.path(entry.store, entry.name)

    def entries(self) -> list[FileEntry]:
        """Everything that is stored here, in a stable order."""
        return [self._records[key].entry for key in sorted(self._records)]

    def visible_files(self, store: StoreId) -> list[StoredFile]:
        names = sorted(entry.name for entry in self.catalogue.store(store).entries())
        return [record for name in names if (record := self._records[store, name]).visible]

    def twins(self, entry: FileEntry) -> list[StoredFile]:
        """Other stored files with the very same bytes (`FileEntry.same_as`)."""
        return [self._records[entry.store, twin.name] for twin in self.catalogue.store(entry.store).twins(entry)]

    def hard_links(self, entry: FileEntry) -> list[StoredFile]:
        """Those of its twins that are the same file on disk: whatever damages one damages all."""
        return [twin for twin in self.twins(entry) if files.same_file(self.path(entry), self.path(twin.entry))]

    def inventory(self, group: GroupId) -> list[FileEntry]:
        """What others may want of a group: everything that the floors here do not let go."""
        found: list[FileEntry] = []
        for store, catalogue in self.catalogue.stores(group).items():
            kept = None if self.is_spread(group.job) else kept_names(catalogue, self.floor(store))
            found += [entry for entry in catalogue.entries() if kept is None or entry.name in kept]
        return found

    def make_visible(self, store: StoreId, name: str) -> None:
        """When the index cannot be written, for this life only: after a restart Prepare shows what is committed."""
        self._set_visible(store, name, visible=True)

    def _set_visible(self, store: StoreId, name: str, *, visible: bool) -> None:
        record = self._records.get((store, name))
        if record is not None and record.visible is not visible:
            record = self._records[store, name] = replace(record, visible=visible)
            self._changed(record.entry)
            hit("store.make_visible.index.before")
            try:
                self._write_index(f"{store}/{name}", lambda: self._index.put_file(record))
            except RhinoError as error:
                extra = {"file": f"{store}/{name}", "visible": visible, "error": str(error)}
                log.error("visibility not kept over a restart", extra=extra)
            hit("store.make_visible.index.after")

    def _hide_incomplete(self, store: StoreId, gone: Iterable[str]) -> None:
        """Snapshots that name a file that is not here any more; the machine shows them again once it is."""
        missing = set(gone)
        for entry in list(self.catalogue.store(store).entries()):
            if not missing.isdisjoint(entry.references):
                self._set_visible(store, entry.name, visible=False)

    def _hide_what_lost_files(self) -> None:
        """At a start, which has dropped what was damaged."""
        for of, catalogue in self.catalogue.stores().items():
            named = {reference for entry in catalogue.entries() for reference in entry.references}
            self._hide_incomplete(of, [name for name in named if name not in catalogue])

    def _enter(self, record: StoredFile) -> None:
        self._records[record.entry.store, record.entry.name] = record
        self._group_bytes[record.entry.store.group] += self._own_bytes(record.entry)
        self.catalogue.add(record.entry, record.arrived_ns / 1e9)
        self._changed(record.entry)

    def _strike(self, store: StoreId, name: str) -> StoredFile:
        record = self._records.pop((store, name))
        self.catalogue.discard(store, name)
        self._group_bytes[store.group] -= self._own_bytes(record.entry)
        self._changed(record.entry)
        return record

    def _own_bytes(self, entry: FileEntry) -> int:
        """By which the store is larger with this file: the same bytes under several names lie there once."""
        return 0 if self.catalogue.store(entry.store).twins(entry) else entry.size_bytes

    def _changed(self, entry: FileEntry) -> None:
        """Newest versions are asked for with every heartbeat: a member must not look at all that others wrote."""
        self._held.pop(entry.store, None)
        if entry.written_by == self._worker_id:
            self._own.pop(entry.store, None)

    # ------------------------------------------------------------ versions

    def newest_held(self, group: GroupId) -> list[StoreVersion]:
        newest = ((store, self._newest_held(store)) for store in self.catalogue.stores(group))
        return [StoreVersion(store, held) for store, held in newest if held is not None]

    def newest_written(self, group: GroupId) -> list[StoreVersion]:
        """Per store the highest version that an executor of this worker wrote and that was committed."""
        newest = ((store, self._newest_written(store)) for store in self.catalogue.stores(group))
        return [StoreVersion(store, written) for store, written in newest if written is not None]

    def _newest_held(self, store: StoreId) -> Version | None:
        if store not in self._held:
            self._held[store] = self.catalogue.store(store).newest_held()
        return self._held[store]

    def _newest_written(self, store: StoreId) -> Version | None:
        if store not in self._own:
            versions = self.catalogue.store(store).newest_first()
            self._own[store] = next((version for version in versions if self._written(store, version)), None)
        return self._own[store]

    def written_here(self, version: StoreVersion) -> bool:
        catalogue = self.catalogue.store(version.store)
        entries = [catalogue.get(f"{version.version}.{end}") for end in ("changelog", "zip")]
        return any(entry is not None and entry.written_by == self._worker_id for entry in entries)

    def _written(self, store: StoreId, version: Version) -> bool:
        """Written by an executor of this worker, and committed."""
        records = (self._records.get((store, name)) for name in (changelog_name(version), snapshot_name(version)))
        return any(r is not None and r.visible and r.entry.written_by == self._worker_id for r in records)

    # ------------------------------------------------------------ epochs, floors, memos

    def epochs(self) -> dict[GroupId, Epoch]:
        return self._index.epochs()

    def put_epoch(self, group: GroupId, epoch: Epoch) -> None:
        """Raises NoSpaceError, IntegrityError: nothing that follows from the epoch may be done then."""
        hit("store.epoch.before")
        self._write_index(f"epoch of {group}", lambda: self._index.put_epoch(group, epoch))
        hit("store.epoch.after")

    def fences(self) -> dict[str, Epoch]:
        """Forgotten jobs, with the epoch below which nothing of them counts."""
        return self._index.fences()

    def floor(self, store: StoreId) -> Version | None:
        return self._floors.get(store)

    def raise_floor(self, store: StoreId, floor: Version) -> bool:
        """Floors only rise; true when this one did."""
        current = self._floors.get(store)
        if raise_floor(current, floor) == current:
            return False
        self._floors[store] = floor
        hit("store.floor.before")
        try:
            self._write_index(f"floor of {store}", lambda: self._index.put_floor(store, floor))
        except RhinoError as error:  # the manager will say it again
            log.error("floor not kept", extra={"store": str(store), "error": str(error)})
        hit("store.floor.after")
        return True

    def memo(self, key: str) -> str | None:
        """What `put_memo` kept under this key, also over restarts."""
        return self._index.meta(key)

    def floors_of(self, group: GroupId) -> list[StoreVersion]:
        return [StoreVersion(store, floor) for store, floor in self._floors.items() if store.group == group]

    def spread(self, job: str) -> None:
        """The job's files are blocks: what is here never tells what others need of them, so nothing is collected."""
        if not self.is_spread(job):
            self.put_memo(f"spread/{job}", "1")

    def is_spread(self, job: str) -> bool:
        return self.memo(f"spread/{job}") is not None

    def put_memo(self, key: str, value: str) -> None:
        """Raises NoSpaceError, IntegrityError."""
        self._write_index(key, lambda: self._index.put_meta(key, value))

    def _write_index(self, doing: str, write: Callable[[], None]) -> None:
        """Raises NoSpaceError, IntegrityError. An index that was stuck when the disk was full is opened anew."""
        try:
            write()
        except Exception as error:  # the binding knows no narrower class
            if not self.disk.has_room_again(error):
                raise self.disk.index_error(error, doing) from error
            try:
                self._index.reopen()
                log.warning("index opened anew: the disk has room again")
                write()
            except Exception as again:
                raise self.disk.index_error(again, doing) from again

    # ------------------------------------------------------------ room

    def stored_bytes(self, group: GroupId | None = None) -> int:
        return self._group_bytes.total() if group is None else self._group_bytes[group]

    def free_bytes(self) -> int:
        return self.disk.free_bytes()

    def capacity_bytes(self) -> int:
        status = os.statvfs(self.layout.store)
        return status.f_blocks * status.f_frsize
