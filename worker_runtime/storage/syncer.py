"""Group fsync for `synced` jobs: many files, their folders and the index share one round of syncs.

A round takes whatever waits when it starts; who comes later joins the next one. Each lane has its own rounds and
threads, so that a small changelog does not wait for a large data file. Files are synced one by one (in parallel) rather
than by syncfs, which would also wait for what Spark has written to the same file system.

A sync that has failed is never repeated: the kernel may have dropped the pages and report success the next time. The
store is failing from then on, and so is every start of it until the machine is rebooted (then every byte is checked).
"""

from __future__ import annotations

import asyncio
import ctypes
import logging
import os
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from rhino.errors import IntegrityError, UnavailableError
from rhino.failpoints import hit
from rhino.ids import Lane
from worker_runtime.storage.files import Layout

log = logging.getLogger(__name__)
THREADS = {Lane.COMMIT: 8, Lane.BULK: 3}
_MARKER = "sync-failed"  # holds the boot id; in the page cache it outlives the process, which is all it is for
_libc = ctypes.CDLL(None, use_errno=True)


def require_no_failure_before(layout: Layout, boot_id: str) -> None:
    """Raises IntegrityError when a sync of a former process has failed since the machine was started."""
    marker = layout.root / _MARKER
    if marker.exists() and marker.read_text() == boot_id:
        raise IntegrityError(
            f"{layout.root}: a sync has failed since this machine was started, so what can be read here may not be on "
            "disk; reboot (every byte is checked then), or start with an empty data_dir"
        )
    marker.unlink(missing_ok=True)


class Syncer:
    """Syncs of one store. `sync_index` makes what was put into the index so far durable; raises OSError; any thread.

    `failed` is set, and `failure` says why, once a sync has failed.
    """

    def __init__(self, layout: Layout, sync_index: Callable[[], None], boot_id: str) -> None:
        self._layout = layout
        self._sync_index = sync_index
        self._boot_id = boot_id
        self.failed = asyncio.Event()
        self.failure: str | None = None
        self._waiting: dict[Lane, list[tuple[Path, asyncio.Future[None]]]] = {lane: [] for lane in Lane}
        self._rounds: dict[Lane, asyncio.Task[None]] = {}
        self._pools = {lane: ThreadPoolExecutor(n + 1, thread_name_prefix="sync") for lane, n in THREADS.items()}

    def close(self) -> None:
        for pool in self._pools.values():
            pool.shutdown()

    async def sync(self, path: Path, lane: Lane) -> None:
        """Returns when the file, its folders and the index are on disk. Raises UnavailableError if the disk fails."""
        self._require_sound()
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[lane].append((path, done))
        if lane not in self._rounds:
            self._rounds[lane] = asyncio.create_task(self._run(lane), name=f"sync rounds, {lane.name}")
        await done

    def sync_everything(self) -> None:
        """Everything on the store's file system. Blocks; raises UnavailableError if the disk fails."""
        self._require_sound()
        folder = os.open(self._layout.root, os.O_RDONLY | os.O_DIRECTORY)
        try:
            if _libc.syncfs(folder) != 0:
                code = ctypes.get_errno()
                raise OSError(code, os.strerror(code), str(self._layout.root))
            self._sync_index()
        except OSError as error:
            self._fail(error)
            self._require_sound()
        finally:
            os.close(folder)

    def _require_sound(self) -> None:
        if self.failure is not None:
            raise UnavailableError(f"{self._layout.root}: {self.failure}; nothing more can be promised to be on disk")

    async def _run(self, lane: Lane) -> None:
        """Round after round, until nobody waits."""
        loop = asyncio.get_running_loop()
        while batch := self._waiting[lane]:
            self._waiting[lane] = []
            paths = [path for path, _ in batch]
            try:
                await loop.run_in_executor(self._pools[lane], self._round, paths, self._pools[lane])
            except Exception as error:  # whatever it was: these files are not known to be on disk
                self._fail(error)
            for _, done in batch:
                if not done.done():
                    self._tell(done)
        del self._rounds[lane]

    def _tell(self, done: asyncio.Future[None]) -> None:
        try:
            self._require_sound()
        except UnavailableError as error:
            done.set_exception(error)
        else:
            done.set_result(None)

    def _round(self, paths: Iterable[Path], pool: ThreadPoolExecutor) -> None:
        """Their order does not matter: nobody is told before all of them are done."""
        hit("store.sync.before")
        files = set(paths)
        folders = {folder for path in files for folder in self._folders(path)}
        work: list[Future[None]] = [pool.submit(self._sync_index)]
        work += [pool.submit(_sync, path) for path in (*files, *folders)]
        errors = [error for future in work if (error := future.exception()) is not None]
        if errors:
            raise errors[0]
        hit("store.sync.after")

    def _folders(self, path: Path) -> Iterable[Path]:
        """Those that lead to the file: any of them may be new."""
        for folder in path.parents:
            yield folder
            if folder == self._layout.root:
                return

    def _fail(self, error: Exception) -> None:
        if self.failure is not None:
            return
        self.failure = f"a sync has failed ({error})"
        log.critical("the store is failing", extra={"data_dir": str(self._layout.root), "error": self.failure})
        self.failed.set()
        try:
            (self._layout.root / _MARKER).write_text(self._boot_id)
        except OSError as second:
            log.critical("cannot leave a note of it for the next start", extra={"error": str(second)})


def _sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
