"""The files of a store: their records, their catalogue, and whether each is listed."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from rhino_core.errors import RhinoError
from rhino_core.failpoints import hit
from rhino_core.ids import FileEntry, GroupId, StoreId, Version
from rhino_core.lineage import LONG, joined
from worker_runtime.protocol.keys import same_bytes
from worker_runtime.protocol.versions.closure import Catalogue, changelog_name
from worker_runtime.storage.disk import files
from worker_runtime.storage.disk.layout import Layout
from worker_runtime.storage.index.index import Index
from worker_runtime.storage.index.newest import NewestVersions
from worker_runtime.storage.index.stored_file import StoredFile

log = logging.getLogger(__name__)
Key = tuple[StoreId, str]


class StoredFiles:
    """Answers from memory. Changes on the event loop only.

    A file is here once its bytes and its index record are durable enough for its job (admission.py). Only then may
    anyone learn of it, so kill -9 at any moment loses nothing that was acknowledged.
    """

    def __init__(
        self, worker_id: str, layout: Layout, index: Index, first_snapshots: Iterable[tuple[StoreId, Version]]
    ) -> None:
        """`first_snapshots`: versions 1 that had a snapshot (`IndexReader.first_snapshots`)."""
        self._layout = layout
        self._index = index
        self._records: dict[Key, StoredFile] = {}
        self._group_bytes: Counter[GroupId] = Counter()
        self._operator_files: Counter[tuple[str, int]] = Counter()  # by job and operator
        self.catalogue = Catalogue()
        self.newest = NewestVersions(worker_id, self.catalogue, self._records)
        for store, version in first_snapshots:
            self.catalogue.had_snapshot(store, version)

    # ------------------------------------------------------------ reading

    def record(self, store: StoreId, name: str) -> StoredFile | None:
        return self._records.get((store, name))

    def __contains__(self, key: Key) -> bool:
        return key in self._records

    def path(self, entry: FileEntry) -> Path:
        return self._layout.path(entry.store, entry.name)

    def entries(self) -> list[FileEntry]:
        """All stored files, in a stable order."""
        return [self._records[key].entry for key in sorted(self._records)]

    def names_of(self, groups: set[GroupId]) -> list[Key]:
        return [key for key in self._records if key[0].group in groups] if groups else []

    def folders_of(self, job: str, groups: Iterable[GroupId]) -> list[Path]:
        """Folders of these groups, and the job's folder if nothing else of the job is here."""
        folders = [self._layout.group(group) for group in sorted(groups)]
        if not self.catalogue.job_known(job):
            # Compares with listed names, so no job name can lead to another folder.
            folders += [folder for folder in self._layout.store.iterdir() if folder.name == job]
        return folders

    def visible(self, store: StoreId) -> list[StoredFile]:
        """Listed files of a store, ordered by name."""
        names = sorted(entry.name for entry in self.catalogue.store(store).entries())
        return [record for name in names if (record := self._records[store, name]).visible]

    def of_size(self, store: StoreId, size_bytes: int) -> list[StoredFile]:
        return [self._records[store, entry.name] for entry in self.catalogue.store(store).data_files(size_bytes)]

    def twins(self, entry: FileEntry) -> list[StoredFile]:
        """Other stored files with exactly the same bytes (`FileEntry.same_as`, `FileEntry.branch_of`)."""
        source = entry.branch_source
        return [*self._renamed(entry), *(self._namesakes(entry, [source]) if source else [])]

    def hard_links(self, entry: FileEntry) -> list[StoredFile]:
        """Stored files with the same inode on disk, also those of branches: damage to one damages all."""
        places = (
            entry.store._replace(job=job, operator=operator)
            for job, operator in self._operator_files
            if job != entry.store.job
        )
        likely = [*self._renamed(entry), *self._namesakes(entry, places)]
        return [other for other in likely if files.same_file(self.path(entry), self.path(other.entry))]

    def _renamed(self, entry: FileEntry) -> list[StoredFile]:
        return [self._records[entry.store, twin.name] for twin in self.catalogue.store(entry.store).twins(entry)]

    def _namesakes(self, entry: FileEntry, places: Iterable[StoreId]) -> list[StoredFile]:
        """Files of the same name, size and checksum in stores of other jobs: those of a branch, or of its source."""
        found = [record for store in places if (record := self._records.get((store, entry.name))) is not None]
        return [record for record in found if same_bytes(record.entry, entry)]

    def stored_bytes(self, group: GroupId | None = None) -> int:
        """Bytes of a group, or of all groups. Identical bytes under several names of a store count once."""
        return self._group_bytes.total() if group is None else self._group_bytes[group]

    # ------------------------------------------------------------ changes

    def add(self, record: StoredFile) -> None:
        """The file counts from now on."""
        lineage = record.entry.lineage
        if len(lineage) >= LONG:
            before = self.catalogue.get(record.entry.store, changelog_name(lineage[-1]))
            shared = joined(before.lineage if before else (), lineage)
            record = replace(record, entry=replace(record.entry, lineage=shared))
        store, name = record.entry.store, record.entry.name
        self._operator_files[store.job, store.operator] += (store, name) not in self._records
        self._records[record.entry.store, record.entry.name] = record
        self._group_bytes[record.entry.store.group] += self._own_bytes(record.entry)
        self.catalogue.add(record.entry, record.arrived_ns / 1e9)
        self.newest.changed(record.entry)

    def discard(self, store: StoreId, name: str) -> StoredFile:
        """The file counts no longer. Neither its bytes nor its index record are touched."""
        record = self._records.pop((store, name))
        self._left(store)
        self.catalogue.discard(store, name)
        self._group_bytes[store.group] -= self._own_bytes(record.entry)
        self.newest.changed(record.entry)
        return record

    def forget(self, groups: Iterable[GroupId], names: Iterable[Key]) -> None:
        """Nothing of these groups counts any longer. `names` are all of their files."""
        for key in names:
            del self._records[key]
            self._left(key[0])
        for group in groups:
            self.newest.forget(self.catalogue.stores(group))  # including stores without files
            del self._group_bytes[group]
            self.catalogue.forget(group)

    def _left(self, store: StoreId) -> None:
        key = (store.job, store.operator)
        self._operator_files[key] -= 1
        if not self._operator_files[key]:
            del self._operator_files[key]

    def _own_bytes(self, entry: FileEntry) -> int:
        return 0 if self.catalogue.store(entry.store).twins(entry) else entry.size_bytes

    # ------------------------------------------------------------ visibility

    def hide_incomplete(self, store: StoreId, gone: Iterable[str]) -> None:
        """Hides snapshots with a removed data file. The machine lists them again once the file is back."""
        missing = set(gone)
        for entry in list(self.catalogue.store(store).entries()):
            if not missing.isdisjoint(entry.references):
                self.set_visible(store, entry.name, visible=False)

    def hide_all_incomplete(self) -> None:
        """Hide incomplete snapshots at a start, after damaged files were dropped."""
        for store, catalogue in self.catalogue.stores().items():
            named = {reference for entry in catalogue.entries() for reference in entry.references}
            self.hide_incomplete(store, [name for name in named if name not in catalogue])

    def set_visible(self, store: StoreId, name: str, *, visible: bool) -> None:
        """Lists the file, or lists it no longer.

        If the index cannot be written, this lasts until the process ends: after a restart, Prepare lists committed
        files.
        """
        record = self._records.get((store, name))
        if record is None or record.visible is visible:
            return
        record = self._records[store, name] = replace(record, visible=visible)
        self.newest.changed(record.entry)
        hit("store.make_visible.index.before")
        try:
            self._index.put_file(record)
        except RhinoError as error:
            extra = {"file": f"{store}/{name}", "visible": visible, "error": str(error)}
            log.error("visibility not kept over a restart", extra=extra)
        hit("store.make_visible.index.after")
