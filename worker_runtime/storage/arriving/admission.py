"""The last steps of a new file: index record, sync if its job requires it, catalogue.

The order is: bytes, rename, index, sync (`synced` jobs), catalogue. The first two are done by the caller.
"""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager

from rhino_core.errors import IntegrityError, RhinoError
from rhino_core.failpoints import hit
from rhino_core.ids import FileEntry, FileKind, StoreId
from worker_runtime.storage.disk import files
from worker_runtime.storage.disk.disk import Disk
from worker_runtime.storage.disk.files import Seal
from worker_runtime.storage.disk.locks import KeyedLocks
from worker_runtime.storage.disk.syncer import Syncer
from worker_runtime.storage.disk.threads import Threads
from worker_runtime.storage.index.arrivals import Arrivals
from worker_runtime.storage.index.durability import JobDurability
from worker_runtime.storage.index.index import Index
from worker_runtime.storage.index.stored_file import StoredFile
from worker_runtime.storage.index.stored_files import StoredFiles


class Admission:
    """Admits files after their bytes are at the final path."""

    def __init__(
        self,
        stored: StoredFiles,
        index: Index,
        durability: JobDurability,
        syncer: Syncer,
        disk: Disk,
        threads: Threads,
        arrivals: Arrivals,
    ) -> None:
        self._stored = stored
        self._index = index
        self._durability = durability
        self._syncer = syncer
        self._disk = disk
        self._threads = threads
        self._arrivals = arrivals
        self._locks = KeyedLocks()

    def turn(self, store: StoreId, name: str) -> AbstractAsyncContextManager[None]:
        """Files of one name take turns, wherever they come from: hold this from the check of the name to `admit`."""
        return self._locks.hold((store, name))

    async def admit(self, entry: FileEntry, seal: Seal, *, received: bool, linked: bool = False) -> StoredFile:
        """Records the file and lets it count. The commit of an uploaded version lists it later.

        `received`: it came from another worker; else an executor uploaded it. `linked`: the file's bytes were not read,
        because it is a hard link of a stored file. Raises NoSpaceError, IntegrityError if the index cannot be written,
        or if the bytes of a link are wrong: the file is deleted then. Raises UnavailableError if the file cannot be
        synced.
        """
        step = "store.incoming.index" if received else "store.take_over.index"
        visible = entry.kind is not FileKind.SNAPSHOT if received else not entry.kind.versioned
        record = StoredFile(entry, seal, self._arrivals.now_ns(), visible, received)
        hit(f"{step}.before")
        try:
            self._index.put_file(record)
        except RhinoError:
            await self._delete(entry)
            raise
        hit(f"{step}.after")
        if self._durability.is_synced(entry.store):
            await self._syncer.sync(self._stored.path(entry), entry.lane)
        if linked and not self._stored.hard_links(entry):
            await self._check_unlinked(record)
        self._stored.add(record)
        return record

    async def _check_unlinked(self, record: StoredFile) -> None:
        """Verifies a link after the removal of its other names: the file may have been damaged."""
        entry, path = record.entry, self._stored.path(record.entry)

        def verify() -> bool:
            with self._disk.errors_of(f"{entry.store}/{entry.name}"):
                return files.verify(path, record.seal, entry.crc32c, deep=True)

        if await self._threads.run_small(entry.lane, verify, entry.size_bytes):
            return
        self._index.delete_files(entry.store, [entry.name])
        await self._delete(entry)
        raise IntegrityError(f"{entry.store}/{entry.name}: its bytes, those of {entry.same_as}, are damaged")

    async def _delete(self, entry: FileEntry) -> None:
        path = self._stored.path(entry)

        def unlink() -> None:
            with self._disk.errors_of(f"{entry.store}/{entry.name}"):
                path.unlink(missing_ok=True)

        await self._threads.run_small(entry.lane, unlink, entry.size_bytes)
