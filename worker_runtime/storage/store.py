"""The store of one sidecar: immutable files on local disk and their index. It is composed of parts; see `Store`.

It belongs to one asyncio loop; blocking work runs in threads (threads.py).
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from rhino_core.folder import claim
from rhino_core.ids import Lane, StoreId
from worker_runtime.storage.arriving.admission import Admission
from worker_runtime.storage.arriving.branches import Branches
from worker_runtime.storage.arriving.inbox import Inbox
from worker_runtime.storage.arriving.received_files import IncomingFiles, ReceivedFiles
from worker_runtime.storage.arriving.uploads import Uploads
from worker_runtime.storage.disk import files
from worker_runtime.storage.disk.allocation.allocator import FileAllocator
from worker_runtime.storage.disk.disk import Disk
from worker_runtime.storage.disk.layout import Layout
from worker_runtime.storage.disk.space import Space
from worker_runtime.storage.disk.syncer import Syncer, failed_before
from worker_runtime.storage.disk.threads import Threads
from worker_runtime.storage.index.durability import JobDurability
from worker_runtime.storage.index.index import Index
from worker_runtime.storage.index.stored_files import StoredFiles
from worker_runtime.storage.keeping import recovery
from worker_runtime.storage.keeping.recovery import Recovered
from worker_runtime.storage.keeping.removal import Removal
from worker_runtime.storage.keeping.retention import Pins, Retention
from worker_runtime.storage.keeping.trash import Trash


class Store:
    """The parts of a store, for separate use. Create one with `Store.open` (blocking).

    - present files: `files` (records, listing), `catalogue` (for the protocol), `index` (epochs, fences, metadata)
    - incoming files: `uploads` (from executors), `received` and `incoming` (from other workers), `partials`, `inbox`,
      `branches` (from other jobs)
    - files to keep or remove: `retention` (floors), `pins`, `removal`, `trash`
    - the disk: `layout`, `disk` (failures), `space`, `threads`, `syncer`, `durability` (by job), `arrivals` (times)
    """

    def __init__(self, worker_id: str, layout: Layout, index: Index, disk: Disk, recovered: Recovered) -> None:
        self.incarnation = recovered.incarnation
        self.partly_read = recovered.partly_read  # after a reboot: files that were on disk have not been read
        self.layout, self.disk = layout, disk
        self.arrivals = recovered.arrivals
        self.partials = recovered.partials
        self.inbox = Inbox(layout.inbox)
        self.pins = Pins()
        self.threads = Threads()
        self.syncer = Syncer(layout, index.sync, recovered.boot_id)
        self.index = index
        self.durability = JobDurability(self.index, self.syncer)
        self.files = StoredFiles(worker_id, layout, self.index, index.first_snapshots())
        self.catalogue = self.files.catalogue
        self.retention = Retention(self.catalogue, self.index, self.pins)
        self.space = Space(disk, self.partials, self.threads)
        self._allocator = FileAllocator(layout, lambda work: self.threads.submit(Lane.COMMIT, work))
        admission = Admission(self.files, self.index, self.durability, self.syncer, disk, self.threads, self.arrivals)
        self.uploads = Uploads(worker_id, layout, self.files, self.retention, admission, self.space, disk, self.threads)
        self.incoming = IncomingFiles(layout, disk, self.space, self.partials, self._allocator)
        self.received = ReceivedFiles(self.files, self.incoming, admission, self.threads)
        self.branches = Branches(worker_id, self.files, self.incoming, admission, self.threads)
        self.trash = Trash(layout, disk, self.threads)
        self.removal = Removal(self.files, self.index, self.retention, self.durability, self.trash, self.space)

    @classmethod
    def open(cls, worker_id: str, data_dir: Path, reserve_bytes: int, *, empty_store: bool = False) -> Store:
        """Opens and recovers the store. Blocks. `empty_store`: files may be deleted if the index is lost or damaged.

        Raises PreconditionError for a folder that is not the sidecar's or has lost its index, IntegrityError if the
        index is damaged, AlreadyThereError if another process has it open.
        """
        claim(data_dir, "sidecar")
        layout = Layout(data_dir)
        layout.create()
        boot_id = recovery.boot_id()
        failed = failed_before(layout, boot_id)
        disk = Disk(layout.store, reserve_bytes)
        index = recovery.open_index(layout, disk, boot_id, empty_store=empty_store)
        try:
            recovered = recovery.recover_folder(layout, index, boot_id, failed=failed)
            store = cls(worker_id, layout, index, disk, recovered)
            store._load(recovered)
        except BaseException:
            index.close()
            raise
        return store

    def _load(self, recovered: Recovered) -> None:
        for record in sorted(recovered.records, key=lambda record: record.arrived_ns):
            self.files.add(record)
        self.files.hide_all_incomplete()
        if recovered.same_boot and any(self.durability.is_synced(record.entry.store) for record in recovered.records):
            self.syncer.sync_everything()  # an earlier process may have been killed before a sync

    def close(self) -> None:
        self._allocator.close()
        self.threads.close()
        self.syncer.close()
        self.index.close()

    async def damaged(self, store: StoreId, names: Iterable[str]) -> list[str]:
        """Names of files changed since they were stored.

        Compares sizes and times of all files, and every byte of changelogs and zips. Raises UnavailableError if this
        cannot be determined now.
        """
        records = [record for name in names if (record := self.files.record(store, name))]

        def check() -> list[str]:
            with self.disk.errors_of(str(store)):
                return [
                    r.entry.name
                    for r in records
                    if not files.verify(self.files.path(r.entry), r.seal, r.entry.crc32c, deep=r.entry.kind.versioned)
                ]

        return await self.threads.run(Lane.COMMIT, check)
