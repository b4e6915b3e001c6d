"""The folders of one sidecar."""

from __future__ import annotations

import functools
import uuid
from pathlib import Path

from rhino_core.folder import subfolder
from rhino_core.ids import GroupId, StoreId

PATHS_MAX = 1024  # size of the cache of paths, enough for the commits under way


class Layout:
    """Folders of one sidecar, all on one file system."""

    def __init__(self, data_dir: Path) -> None:
        self.root = data_dir
        self.store = data_dir / "store"
        self.inbox = data_dir / "inbox"
        self.tmp = data_dir / "tmp"
        self.partial = data_dir / "partial"
        self.preallocated = data_dir / "spare"  # named by the first Rhino that had it
        self.index = data_dir / "index"
        self.written = self.index / "acknowledged"  # written.py
        # Cached, because a commit asks for the path of its file several times, and pathlib is slow.
        self._paths = functools.lru_cache(PATHS_MAX)(lambda store, name: self.store / f"{store}/{name}")

    def create(self) -> None:
        """Creates the subfolders in the sidecar's folder.

        Raises PreconditionError for a link in place of a folder.
        """
        for folder in (self.store, self.inbox, self.tmp, self.partial, self.preallocated, self.index):
            subfolder(folder)

    def path(self, store: StoreId, name: str) -> Path:
        return self._paths(store, name)

    def group(self, group: GroupId) -> Path:
        return self.store / str(group)

    def temporary(self) -> Path:
        return self.tmp / uuid.uuid4().hex
