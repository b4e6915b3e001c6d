"""Files of one job as files of another: hard links. No byte is copied or read. And files of empty stores."""

from __future__ import annotations

from dataclasses import replace

from crc32c import crc32c

from rhino_core.errors import UnknownError
from rhino_core.ids import FileEntry, Lane, StoreId, StoreVersion
from worker_runtime.protocol.versions.closure import snapshot_name
from worker_runtime.storage.arriving.admission import Admission
from worker_runtime.storage.arriving.received_files import IncomingFiles, same
from worker_runtime.storage.arriving.zips import empty_snapshot
from worker_runtime.storage.disk.files import Seal
from worker_runtime.storage.disk.threads import Threads
from worker_runtime.storage.index.stored_file import StoredFile
from worker_runtime.storage.index.stored_files import StoredFiles


class Branches:
    """Links stored files, and makes empty ones. `worker_id` is recorded as their writer."""

    def __init__(
        self, worker_id: str, stored: StoredFiles, incoming: IncomingFiles, admission: Admission, threads: Threads
    ) -> None:
        self._worker_id = worker_id
        self._stored = stored
        self._incoming = incoming
        self._admission = admission
        self._threads = threads

    async def link(self, source: FileEntry, store: StoreId) -> StoredFile:
        """Makes a stored file a file of `store`, too, a store of another job. A changelog or zip is hidden at first,
        like an uploaded one.

        The call may be repeated. Raises UnknownError if the source is not here or was changed on disk,
        PreconditionError if the file system refuses the link, AlreadyThereError for a different file of the same name,
        NoSpaceError, IntegrityError, UnavailableError if the file cannot be synced.
        """
        operator = source.store.operator
        entry = replace(
            source,
            store=store,
            written_by=self._worker_id,
            branch_of=source.store.job,
            branch_operator=operator if operator != store.operator else None,
        )
        async with self._admission.turn(store, entry.name):
            if (known := self._known(entry)) is not None:
                return known
            record = self._stored.record(source.store, source.name)

            def link() -> Seal | None:
                incoming = self._incoming.link(entry, [record] if record is not None else [], must=True)
                return None if incoming is None else self._incoming.place(entry, incoming)

            seal = await self._threads.run(Lane.BULK, link)
            if seal is None:
                raise UnknownError(f"{source.store}/{source.name} is not here, or was changed on disk")
            return await self._admission.admit(entry, seal, received=False, linked=True)

    async def make_empty(self, version: StoreVersion) -> StoredFile:
        """Makes the version as a snapshot without keys, hidden at first. The call may be repeated.

        Raises AlreadyThereError for a different file of the same name, NoSpaceError, IntegrityError, UnavailableError
        if the file cannot be synced.
        """
        content = empty_snapshot()
        name = snapshot_name(version.version)
        entry = FileEntry(version.store, name, len(content), crc32c(content), written_by=self._worker_id)
        async with self._admission.turn(version.store, name):
            if (known := self._known(entry)) is not None:
                return known
            seal = await self._threads.run(
                entry.lane, lambda: self._incoming.place(entry, self._incoming.begin(entry, [content]))
            )
            return await self._admission.admit(entry, seal, received=False)

    def _known(self, entry: FileEntry) -> StoredFile | None:
        """The stored file of this name. Raises AlreadyThereError if it has other bytes."""
        known = self._stored.record(entry.store, entry.name)
        return None if known is None else same(known, entry)
