"""The trash: files and folders are renamed into `tmp` at once and deleted there later.

So a slow deletion cannot hit a new file of the same name. The next start deletes leftovers.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterable
from pathlib import Path

from rhino_core.errors import LocalProtocolError
from rhino_core.failpoints import hit
from rhino_core.ids import Lane
from worker_runtime.storage.disk.disk import Disk
from worker_runtime.storage.disk.layout import Layout
from worker_runtime.storage.disk.threads import Threads

log = logging.getLogger(__name__)


class Trash:
    """Moves and deletes. Only paths below the `store` folder can be moved."""

    def __init__(self, layout: Layout, disk: Disk, threads: Threads) -> None:
        self._layout = layout
        self._disk = disk
        self._threads = threads

    def move(self, path: Path) -> Path | None:
        """Moves a file or folder to the trash. Returns its new path.

        None if it does not exist, or if it stays until the next start deletes it. Raises LocalProtocolError for a path
        outside the store: nothing else may be deleted, whatever the cause.
        """
        if self._layout.store not in path.parents or ".." in path.parts:
            raise LocalProtocolError(f"{path} is not below {self._layout.store}: not deleted")
        trashed = self._layout.temporary()
        try:
            path.rename(trashed)
        except FileNotFoundError:
            return None
        except OSError as error:
            self._failed(path, error)
            return None
        return trashed

    def discard(self, path: Path) -> None:
        """Deletes a file, or a folder with everything in it, soon."""

        def discard() -> None:
            hit("store.discard.before")
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)
            hit("store.discard.after")

        self._threads.submit(Lane.BULK, discard)

    async def delete(self, paths: Iterable[Path]) -> None:
        """Deletes moved files, in a thread. One that cannot be deleted stays until the next start."""

        def unlink() -> None:
            for path in paths:
                hit("store.remove.unlink.before")
                try:
                    path.unlink(missing_ok=True)
                except OSError as error:
                    self._failed(path, error)
                hit("store.remove.unlink.after")

        await self._threads.run(Lane.BULK, unlink)

    def _failed(self, path: Path, error: OSError) -> None:
        self._disk.record_error(error)
        log.error("cannot delete", extra={"path": str(path), "error": str(error)})
