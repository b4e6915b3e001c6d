"""Files that executors of this worker upload: from their inbox into the store."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from rhino_core.errors import AlreadyThereError, InvalidRequestError, PreconditionError
from rhino_core.failpoints import hit
from rhino_core.ids import FileEntry, FileKind, Lane, StoreId, Version, parse_name
from worker_runtime.protocol.closure import snapshot_name
from worker_runtime.storage import files
from worker_runtime.storage.admission import Admission
from worker_runtime.storage.files import Checked
from worker_runtime.storage.layout import Layout
from worker_runtime.storage.locks import KeyedLocks
from worker_runtime.storage.retention import Retention
from worker_runtime.storage.space import Space
from worker_runtime.storage.stored_file import StoredFile
from worker_runtime.storage.stored_files import StoredFiles
from worker_runtime.storage.threads import DiskWork
from worker_runtime.storage.zips import zip_references


@dataclass(frozen=True, slots=True)
class _Checked:
    checked: Checked
    references: tuple[str, ...]
    identity: tuple[int, int]


class Uploads:
    """Takes over files. `worker_id` is recorded as their writer. `locks` are shared with received files."""

    def __init__(
        self,
        worker_id: str,
        layout: Layout,
        stored: StoredFiles,
        retention: Retention,
        admission: Admission,
        locks: KeyedLocks,
        space: Space,
        work: DiskWork,
    ) -> None:
        """Raises OSError if the store's folder cannot be read."""
        self._worker_id = worker_id
        self._layout = layout
        self._stored = stored
        self._retention = retention
        self._admission = admission
        self._locks = locks
        self._space = space
        self._work = work
        self._device = os.stat(layout.store).st_dev

    async def take_over(
        self, store: StoreId, name: str, inbox_file: Path, lineage: tuple[Version, ...] = ()
    ) -> StoredFile:
        """Take a client's file out of its inbox into the store. A changelog or zip is hidden at first.

        The same file may come again, even if the first attempt has already moved it out of the inbox. Raises
        AlreadyThereError for a different file of the same name, PreconditionError for a zip that names a file missing
        here, NoSpaceError, InvalidRequestError, UnknownError, UnavailableError if the file cannot be synced.
        """
        async with self._locks.hold((store, name)):
            known = self._stored.record(store, name)
            if known is not None:
                return await self._again(known, inbox_file)
            return await self._first(store, name, inbox_file, lineage)

    async def _first(self, store: StoreId, name: str, inbox_file: Path, lineage: tuple[Version, ...]) -> StoredFile:
        kind, path = parse_name(name).kind, self._layout.path(store, name)
        size_bytes = files.size_of(inbox_file)
        likely = [] if kind.versioned else self._of_size(store, size_bytes)

        def take() -> _Checked:
            checked = self._check(inbox_file, kind, likely)
            if not checked.references:  # saves a second switch to a thread for everything but zips
                files.move_in(inbox_file, path, checked.identity)
            return checked

        lane = Lane.COMMIT if kind.versioned else Lane.BULK
        found = await self._work.on_bytes(lane, f"{store}/{name}", take, size_bytes)
        checked, references = found.checked, found.references or self._first_snapshot(store, name)
        entry = FileEntry(
            store,
            name,
            checked.seal.size_bytes,
            checked.crc32c,
            lineage,
            references,
            written_by=self._worker_id,
            same_as=checked.same_as,
        )
        self._require_references(entry)
        with self._retention.protecting(store, references):
            if found.references:
                await self._work.on_file(entry, lambda: files.move_in(inbox_file, path, found.identity))
            return await self._admission.admit(entry, checked.seal, received=False, linked=checked.linked)

    async def _again(self, known: StoredFile, inbox_file: Path) -> StoredFile:
        """The file is here already: compare, and delete the duplicate."""
        entry = known.entry

        def check() -> Checked | None:
            if entry.written_by == self._worker_id and not os.path.lexists(inbox_file):
                return None  # an earlier attempt took it over, and its answer was lost
            return self._check(inbox_file, entry.kind, likely).checked

        size_bytes = files.size_of(inbox_file)
        likely = [] if entry.kind.versioned else self._of_size(entry.store, size_bytes)
        checked = await self._work.on_bytes(entry.lane, f"{entry.store}/{entry.name}", check, size_bytes)
        if checked is None:
            return known
        if (entry.crc32c, entry.size_bytes) != (checked.crc32c, checked.seal.size_bytes):
            raise AlreadyThereError(
                f"{entry.store}/{entry.name} is here with {entry.size_bytes} bytes and crc32c {entry.crc32c:08x}; "
                f"offered {checked.seal.size_bytes} bytes with {checked.crc32c:08x}"
            )
        hit("store.inbox.unlink.before")
        await self._work.in_thread(Lane.COMMIT, str(inbox_file), lambda: inbox_file.unlink(missing_ok=True))
        hit("store.inbox.unlink.after")
        return known

    def _check(self, path: Path, kind: FileKind, likely: Iterable[tuple[Path, Checked]]) -> _Checked:
        self._space.make_room(0)
        checked, identity = files.check_inbox_file(path, self._device, likely)
        references = zip_references(path) if kind is FileKind.SNAPSHOT else ()
        for reference in references:
            if parse_name(reference).kind.versioned:
                raise InvalidRequestError(f"{path.name}: names {reference!r}, expected SST and log files only")
        return _Checked(checked, references, identity)

    def _of_size(self, store: StoreId, size_bytes: int) -> list[tuple[Path, Checked]]:
        """Stored data files of which a new file of this size may be a hard link or a copy.

        Spark uploads a file again, under another name, while its first upload is under way.
        """
        return [
            (self._stored.path(r.entry), Checked(r.seal, r.entry.crc32c, r.entry.content, linked=True))
            for r in self._stored.of_size(store, size_bytes)
        ]

    def _first_snapshot(self, store: StoreId, name: str) -> tuple[str, ...]:
        """References for the changelog of version 1: the version's snapshot, which exists if the store has column
        families.

        The changelog may reach a worker before the snapshot, so it has to name it.
        """
        kind, version = parse_name(name)
        if kind is not FileKind.CHANGELOG or version is None or version.version != 1:
            return ()
        return (snapshot,) if (snapshot := snapshot_name(version)) in self._stored.catalogue.store(store) else ()

    def _require_references(self, entry: FileEntry) -> None:
        missing = [reference for reference in entry.references if (entry.store, reference) not in self._stored]
        if missing:
            raise PreconditionError(
                f"{entry.store}/{entry.name}: names {len(missing)} files that are not here, first {missing[0]}; "
                "add them before"
            )
