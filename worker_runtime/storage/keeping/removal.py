"""Removes files from a store: unneeded files, damaged files, files of forgotten jobs.

A file first leaves the index, then moves to the trash, and then is deleted. If the process dies in between, the next
start deletes all files that are not in the index.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from rhino_core.failpoints import hit
from rhino_core.ids import Epoch, GroupId, StoreId
from worker_runtime.storage.disk.space import Space
from worker_runtime.storage.index.durability import JobDurability
from worker_runtime.storage.index.index import Index
from worker_runtime.storage.index.stored_files import StoredFiles
from worker_runtime.storage.keeping.retention import Retention
from worker_runtime.storage.keeping.trash import Trash


class Removal:
    """Deletes the files that other parts have decided on."""

    def __init__(
        self,
        files: StoredFiles,
        index: Index,
        retention: Retention,
        durability: JobDurability,
        trash: Trash,
        space: Space,
    ) -> None:
        self._files = files
        self._index = index
        self._retention = retention
        self._durability = durability
        self._trash = trash
        self._space = space

    async def collect(self, store: StoreId, busy: Iterable[str]) -> tuple[str, ...]:
        """Deletes the files that no version at or above the floor, no pin and nothing in `busy` needs.

        Returns their names. Raises like `remove`.
        """
        names = self._retention.collectable(store, busy)
        await self.remove(store, names)
        return names

    async def remove(self, store: StoreId, names: Iterable[str]) -> None:
        """Removes the files from the index at once, then from disk. The order holds even if the process dies between.

        Raises like `take_out`.
        """
        if trashed := self.take_out(store, names):
            await self.delete(trashed)

    def take_out(self, store: StoreId, names: Iterable[str]) -> list[Path]:
        """The first half of `remove`, without a wait: the files do not count any more. Returns the paths to `delete`.

        Raises NoSpaceError, IntegrityError if the index cannot be written: nothing is removed then.
        """
        present = [name for name in names if (store, name) in self._files]
        if not present:
            return []
        hit("store.remove.index.before")
        oldest = self._oldest_base(store, present) if self._index.has_long_lineages(store) else 0
        self._index.delete_files(store, present, oldest)
        hit("store.remove.index.after")
        trashed: list[Path] = []
        for name in present:
            record = self._files.discard(store, name)
            hit("store.remove.trash.before")
            moved = self._trash.move(self._files.path(record.entry))
            hit("store.remove.trash.after")
            if moved is not None:
                trashed.append(moved)
        self._files.hide_incomplete(store, present)
        return trashed

    async def delete(self, trashed: list[Path]) -> None:
        """The second half of `remove`: delete from disk. Raises nothing: the files do not count."""
        await self._trash.delete(trashed)

    def drop_file(self, store: StoreId, name: str) -> None:
        """Removes the file at once and deletes it in the background. Raises like `take_out`."""
        for trashed in self.take_out(store, (name,)):
            self._trash.discard(trashed)

    def _oldest_base(self, store: StoreId, gone: Iterable[str]) -> int | None:
        """Number of the oldest version in the lineage of any remaining changelog; None if there is none."""
        going = set(gone)
        changelogs = self._files.catalogue.store(store).changelogs()
        bases = (entry.lineage[0].version for entry in changelogs if entry.lineage and entry.name not in going)
        return min(bases, default=None)

    def drop_job(self, job: str, fence: Epoch, groups: Iterable[GroupId]) -> int:
        """Persist the fence and forget these groups at once, then delete in the background. Return the number of files.

        Raises NoSpaceError, IntegrityError if the index cannot be written: nothing is forgotten then.
        """
        gone = set(groups)
        names = self._files.names_of(gone)
        self._index.drop_job(job, fence, gone, names)
        self._files.forget(gone, names)
        self._retention.forget(gone)
        for folder in self._files.folders_of(job, gone):
            hit("store.drop_job.trash.before")
            trashed = self._trash.move(folder)
            hit("store.drop_job.trash.after")
            if trashed is not None:
                self._trash.discard(trashed)
        self._space.clear_partials_later()  # partial files do not name their job
        self._durability.forget(job)
        return len(names)
