"""Uploads of this worker's executors: from their inbox into the store."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from rhino_core.errors import AlreadyThereError, InvalidRequestError, PreconditionError
from rhino_core.failpoints import hit
from rhino_core.ids import FileEntry, FileKind, Lane, StoreId, Version, parse_name
from worker_runtime.protocol.versions.closure import snapshot_name
from worker_runtime.storage.arriving.admission import Admission
from worker_runtime.storage.arriving.zips import zip_references
from worker_runtime.storage.disk import files
from worker_runtime.storage.disk.disk import Disk
from worker_runtime.storage.disk.files import Checked
from worker_runtime.storage.disk.layout import Layout
from worker_runtime.storage.disk.space import Space
from worker_runtime.storage.disk.threads import Threads
from worker_runtime.storage.index.stored_file import StoredFile
from worker_runtime.storage.index.stored_files import StoredFiles
from worker_runtime.storage.keeping.retention import Retention


@dataclass(frozen=True, slots=True)
class _Checked:
    checked: Checked
    references: tuple[str, ...]
    identity: tuple[int, int]


class Uploads:
    """Takes over files. `worker_id` is recorded as their writer."""

    def __init__(
        self,
        worker_id: str,
        layout: Layout,
        stored: StoredFiles,
        retention: Retention,
        admission: Admission,
        space: Space,
        disk: Disk,
        threads: Threads,
    ) -> None:
        """Raises OSError if the store's folder cannot be read."""
        self._worker_id = worker_id
        self._layout = layout
        self._stored = stored
        self._retention = retention
        self._admission = admission
        self._space = space
        self._disk = disk
        self._threads = threads
        self._device = os.stat(layout.store).st_dev

    async def take_over(
        self, store: StoreId, name: str, inbox_file: Path, lineage: tuple[Version, ...] = ()
    ) -> StoredFile:
        """Takes a client's file out of its inbox into the store. A changelog or zip is hidden at first.

        The same file may come again, even if the first attempt has already moved it out of the inbox. Raises
        AlreadyThereError for a different file of the same name, PreconditionError for a zip with a data file missing
        here, NoSpaceError, InvalidRequestError, UnknownError, UnavailableError if the file cannot be synced.
        """
        async with self._admission.turn(store, name):
            if (known := self._stored.record(store, name)) is not None:
                return await self._again(known, inbox_file)
            kind, size_bytes = parse_name(name).kind, files.size_of(inbox_file)
            lane = Lane.COMMIT if kind.versioned else Lane.BULK
            likely = [] if kind.versioned else self._of_size(store, size_bytes)
            take = partial(self._take, store, name, inbox_file, likely)
            taken = await self._threads.run_small(lane, take, size_bytes)
            entry = self._entry(store, name, taken, lineage)
            with self._retention.protecting(store, entry.references):
                if taken.references:
                    move = partial(self._move_in, entry, inbox_file, taken.identity)
                    await self._threads.run_small(entry.lane, move, entry.size_bytes)
                seal, linked = taken.checked.seal, taken.checked.linked
                return await self._admission.admit(entry, seal, received=False, linked=linked)

    async def _again(self, known: StoredFile, inbox_file: Path) -> StoredFile:
        """The file is here already: compare, and delete the duplicate."""
        entry = known.entry

        def check() -> Checked | None:
            if entry.written_by == self._worker_id and not os.path.lexists(inbox_file):
                return None  # an earlier attempt took it over, and its answer was lost
            with self._disk.errors_of(f"{entry.store}/{entry.name}"):
                return self._check(inbox_file, entry.kind, likely).checked

        def unlink() -> None:
            with self._disk.errors_of(str(inbox_file)):
                inbox_file.unlink(missing_ok=True)

        size_bytes = files.size_of(inbox_file)
        likely = [] if entry.kind.versioned else self._of_size(entry.store, size_bytes)
        checked = await self._threads.run_small(entry.lane, check, size_bytes)
        if checked is None:
            return known
        if (entry.crc32c, entry.size_bytes) != (checked.crc32c, checked.seal.size_bytes):
            raise AlreadyThereError(
                f"{entry.store}/{entry.name} is here with {entry.size_bytes} bytes and crc32c {entry.crc32c:08x}; "
                f"offered {checked.seal.size_bytes} bytes with {checked.crc32c:08x}"
            )
        hit("store.inbox.unlink.before")
        await self._threads.run(Lane.COMMIT, unlink)
        hit("store.inbox.unlink.after")
        return known

    # ------------------------------------------------------------ blocking work

    def _take(self, store: StoreId, name: str, inbox_file: Path, likely: Iterable[tuple[Path, Checked]]) -> _Checked:
        """Checks the file. Moves it into the store unless it is a zip: the data files of a zip are checked first."""
        with self._disk.errors_of(f"{store}/{name}"):
            checked = self._check(inbox_file, parse_name(name).kind, likely)
            if not checked.references:  # saves a second switch to a thread for everything but zips
                files.move_in(inbox_file, self._layout.path(store, name), checked.identity)
        return checked

    def _move_in(self, entry: FileEntry, inbox_file: Path, identity: tuple[int, int]) -> None:
        with self._disk.errors_of(f"{entry.store}/{entry.name}"):
            files.move_in(inbox_file, self._layout.path(entry.store, entry.name), identity)

    def _check(self, path: Path, kind: FileKind, likely: Iterable[tuple[Path, Checked]]) -> _Checked:
        self._space.make_room(0)
        checked, identity = files.check_inbox_file(path, self._device, likely)
        references = zip_references(path) if kind is FileKind.SNAPSHOT else ()
        for reference in references:
            if parse_name(reference).kind.versioned:
                raise InvalidRequestError(f"{path.name}: names {reference!r}, expected SST and log files only")
        return _Checked(checked, references, identity)

    # ------------------------------------------------------------ entries

    def _entry(self, store: StoreId, name: str, taken: _Checked, lineage: tuple[Version, ...]) -> FileEntry:
        """The entry of a checked file. Raises PreconditionError if it names files missing here."""
        entry = FileEntry(
            store,
            name,
            taken.checked.seal.size_bytes,
            taken.checked.crc32c,
            lineage,
            taken.references or self._first_snapshot(store, name),
            written_by=self._worker_id,
            same_as=taken.checked.same_as,
        )
        missing = [reference for reference in entry.references if (store, reference) not in self._stored]
        if missing:
            raise PreconditionError(
                f"{store}/{name}: names {len(missing)} files that are not here, first {missing[0]}; add them before"
            )
        return entry

    def _of_size(self, store: StoreId, size_bytes: int) -> list[tuple[Path, Checked]]:
        """Stored data files of this size: a new file may be a hard link or a copy of one.

        Spark uploads a file again, under another name, while its first upload is under way.
        """
        return [
            (self._stored.path(r.entry), Checked(r.seal, r.entry.crc32c, r.entry.content, linked=True))
            for r in self._stored.of_size(store, size_bytes)
        ]

    def _first_snapshot(self, store: StoreId, name: str) -> tuple[str, ...]:
        """References for the changelog of version 1: the version's snapshot. It exists if the store has column
        families.

        The changelog may reach a worker before the snapshot, so it has to name it.
        """
        kind, version = parse_name(name)
        if kind is not FileKind.CHANGELOG or version is None or version.version != 1:
            return ()
        return (snapshot,) if (snapshot := snapshot_name(version)) in self._stored.catalogue.store(store) else ()
