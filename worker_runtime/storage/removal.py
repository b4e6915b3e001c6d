"""What leaves a store: files that no version needs, damaged ones, forgotten jobs.

Out of the index first, then out of sight by a rename, then off the disk: whenever the process dies in between, the
next start deletes what the index does not name.
"""

from __future__ import annotations

import logging
import shutil
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

from rhino.failpoints import hit
from rhino.ids import Epoch, FileEntry, GroupId, Lane, StoreId
from worker_runtime.core.closure import collectable
from worker_runtime.storage import files
from worker_runtime.storage.books import Books, Key
from worker_runtime.storage.disk import Disk
from worker_runtime.storage.files import Layout
from worker_runtime.storage.index import Index
from worker_runtime.storage.partials import Partials
from worker_runtime.storage.pins import Pins
from worker_runtime.storage.threads import Threads

log = logging.getLogger(__name__)
T = TypeVar("T")


class Removing(Books):
    """Books from which files can be struck together with their bytes."""

    def __init__(self, worker_id: str, layout: Layout, index: Index, disk: Disk) -> None:
        super().__init__(worker_id, layout, index, disk)
        self.pins = Pins()
        self.threads = Threads()
        self.partials = Partials(layout)
        self._protected: Counter[Key] = Counter()  # referenced by zips that are being taken over

    def protected(self, store: StoreId) -> set[str]:
        """Names that a zip which is being taken over needs."""
        return {name for (of, name), count in self._protected.items() if of == store and count > 0}

    async def collect(self, store: StoreId, busy: Iterable[str]) -> tuple[str, ...]:
        """Deletes what no version at or above the floor, no pin and nothing in `busy` needs; returns the names."""
        if self.is_spread(store.job):
            return ()
        kept = self.protected(store).union(busy)
        names = collectable(self.catalogue.store(store), self.floor(store), self.pins.of(store), kept)
        await self.remove(store, names)
        return names

    async def remove(self, store: StoreId, names: Iterable[str]) -> None:
        """Out of the index at once, then off the disk; in this order also if the process dies in between.

        Raises NoSpaceError, IntegrityError when the index cannot be written: nothing is removed then.
        """
        present = [name for name in names if (store, name) in self._records]
        if not present:
            return
        hit("store.remove.index.before")
        self._write_index(str(store), lambda: self._index.delete_files(store, present))
        hit("store.remove.index.after")
        graves: list[Path] = []
        for name in present:
            record = self._strike(store, name)
            # Renamed here and now, so that a new file of the same name cannot be hit by the slow deletion.
            hit("store.remove.bury.before")
            grave = self._bury(self.path(record.entry))
            hit("store.remove.bury.after")
            if grave is not None:
                graves.append(grave)
        self._hide_incomplete(store, present)
        await self.threads.run(Lane.BULK, lambda: self._here(str(store), lambda: files.unlink_all(graves)))

    def drop_job(self, job: str, fence: Epoch, groups: Iterable[GroupId]) -> int:
        """Persists the fence and forgets these groups at once, then deletes in the background; the number of files.

        Raises NoSpaceError, IntegrityError when the index cannot be written: nothing is forgotten then.
        """
        gone = set(groups)
        keys = [key for key in self._records if key[0].group in gone] if gone else []
        hit("store.drop_job.index.before")
        self._write_index(f"job {job}", lambda: self._index.drop_job(job, fence, gone, keys))
        hit("store.drop_job.index.after")
        for key in keys:
            del self._records[key]
            self._held.pop(key[0], None)
            self._own.pop(key[0], None)
        for group in gone:
            del self._group_bytes[group]
            self.catalogue.forget(group)
        self._floors = {store: floor for store, floor in self._floors.items() if store.group not in gone}
        folders = [self.layout.group(group) for group in sorted(gone)]
        if not self.catalogue.job_known(job):
            folders.append(self.layout.store / job)
        for folder in folders:
            hit("store.drop_job.bury.before")
            grave = self._bury(folder)
            hit("store.drop_job.bury.after")
            if grave is not None:
                self.discard_folder(grave)
        self.threads.submit(Lane.BULK, self.partials.clear)  # their names do not say of which job they are
        return len(keys)

    def _bury(self, path: Path) -> Path | None:
        """Moves a file or folder out of sight; None when it is not there, or stays for the next start to delete."""
        grave = self.layout.temporary()
        try:
            path.rename(grave)
        except FileNotFoundError:
            return None
        except OSError as error:
            self.disk.note(error)
            log.error("cannot delete", extra={"path": str(path), "error": str(error)})
            return None
        return grave

    def discard_folder(self, folder: Path) -> None:
        """Removes a folder some time soon; leftovers go at the next start."""

        def discard() -> None:
            hit("store.discard_folder.before")
            shutil.rmtree(folder, ignore_errors=True)
            hit("store.discard_folder.after")

        self.threads.submit(Lane.BULK, discard)

    async def _guarded(self, entry: FileEntry, work: Callable[[], T]) -> T:
        """Blocking work on a file; errors of the disk become NoSpaceError or IntegrityError."""
        return await self._run_guarded(entry.lane, f"{entry.store}/{entry.name}", work, entry.size_bytes)

    async def _run_guarded(self, lane: Lane, doing: str, work: Callable[[], T], size_bytes: int) -> T:
        return await self.threads.run_small(lane, lambda: self._here(doing, work), size_bytes)

    def _here(self, doing: str, work: Callable[[], T]) -> T:
        """In this thread."""
        try:
            return work()
        except OSError as error:
            raise self.disk.error(error, doing) from error
