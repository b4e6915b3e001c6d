"""Newest versions of each store. Every heartbeat reports them, so they are cached until a file of the store changes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from rhino_core.ids import FileEntry, GroupId, StoreId, StoreVersion, Version
from worker_runtime.protocol.versions.closure import Catalogue, changelog_name, snapshot_name
from worker_runtime.storage.index.stored_file import StoredFile


class NewestVersions:
    """Reads the catalogue and the records of all stored files. `worker_id` is this worker."""

    def __init__(self, worker_id: str, catalogue: Catalogue, records: Mapping[tuple[StoreId, str], StoredFile]) -> None:
        self._worker_id = worker_id
        self._catalogue = catalogue
        self._records = records
        self._held: dict[StoreId, Version | None] = {}
        # Invalidated by files written here only: a member must not search through everything that others wrote.
        self._written: dict[StoreId, Version | None] = {}

    def changed(self, entry: FileEntry) -> None:
        """This file was added, removed, shown or hidden."""
        self._held.pop(entry.store, None)
        if entry.written_by == self._worker_id:
            self._written.pop(entry.store, None)

    def forget(self, stores: Iterable[StoreId]) -> None:
        for store in stores:
            self._held.pop(store, None)
            self._written.pop(store, None)

    def held(self, group: GroupId) -> list[StoreVersion]:
        """Per store, the newest version held here."""
        newest = ((store, self._newest_held(store)) for store in self._catalogue.stores(group))
        return [StoreVersion(store, held) for store, held in newest if held is not None]

    def written(self, group: GroupId) -> list[StoreVersion]:
        """Per store, the highest committed version of an executor of this worker."""
        newest = ((store, self._newest_written(store)) for store in self._catalogue.stores(group))
        return [StoreVersion(store, written) for store, written in newest if written is not None]

    def is_written_here(self, version: StoreVersion) -> bool:
        """Whether an executor of this worker wrote the version, committed or not."""
        catalogue = self._catalogue.store(version.store)
        entries = [catalogue.get(f"{version.version}.{end}") for end in ("changelog", "zip")]
        return any(entry is not None and entry.written_by == self._worker_id for entry in entries)

    def _newest_held(self, store: StoreId) -> Version | None:
        if store not in self._held:
            self._held[store] = self._catalogue.store(store).newest_held()
        return self._held[store]

    def _newest_written(self, store: StoreId) -> Version | None:
        if store not in self._written:
            versions = self._catalogue.store(store).newest_first()
            self._written[store] = next((version for version in versions if self._is_committed(store, version)), None)
        return self._written[store]

    def _is_committed(self, store: StoreId, version: Version) -> bool:
        """Whether an executor of this worker wrote the version and it was committed."""
        records = (self._records.get((store, name)) for name in (changelog_name(version), snapshot_name(version)))
        return any(r is not None and r.visible and r.entry.written_by == self._worker_id for r in records)
