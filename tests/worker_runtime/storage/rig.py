"""A store on a real disk, for tests that close it, damage it, or open it again."""

from __future__ import annotations

from pathlib import Path

from crc32c import crc32c

from rhino_core.ids import FileEntry
from tests.worker_runtime.scenario import STORE, version
from worker_runtime.protocol.versions.closure import changelog_name
from worker_runtime.storage.store import Store

NAME = changelog_name(version(1))
SST = "SSTs/000001-u.sst"


class Disk:
    """A store that can be closed or "killed", and opened again."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.store = Store.open("me", folder, 0)

    def reopen(self) -> Store:
        self.store.close()
        self.store = Store.open("me", self.folder, 0)
        return self.store

    def inbox(self, content: bytes, name: str = "new") -> Path:
        path = self.folder / "inbox" / name
        path.write_bytes(content)
        return path

    def path(self, name: str) -> Path:
        return self.store.layout.path(STORE, name)


def entry_of(content: bytes, name: str = NAME) -> FileEntry:
    return FileEntry(STORE, name, len(content), crc32c(content), written_by="other")
