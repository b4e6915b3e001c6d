"""Group fsync for `synced` jobs: many files, their folders and the index share one round of syncs.

A round syncs everything waiting at its start. Later requests join the next round. Each lane has its own rounds and
threads, so a small changelog does not wait for a large data file. Files are synced one by one, in parallel. syncfs
would also wait for Spark's writes to the same file system.

A failed sync is never repeated: the kernel may have dropped the pages and report success the next time. From then on
the store is failing, and so is every start of it until the machine is rebooted. After the reboot every byte is checked.
"""

from __future__ import annotations

import asyncio
import ctypes
import logging
import os
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from rhino_core.errors import IntegrityError, UnavailableError
from rhino_core.failpoints import hit
from rhino_core.ids import Lane
from rhino_core.retry import DESCRIPTOR_PAUSE_S
from worker_runtime.storage.disk.files import NOT_THE_FILE
from worker_runtime.storage.disk.layout import Layout

log = logging.getLogger(__name__)
THREADS = {Lane.COMMIT: 8, Lane.BULK: 3}
_MARKER = "sync-failed"  # contains the boot id; it only has to outlive the process, so the page cache suffices
_libc = ctypes.CDLL(None, use_errno=True)


def failed_before(layout: Layout, boot_id: str) -> bool:
    """Whether a sync of an earlier process had failed before the machine was rebooted. Clear this with
    `forget_failure`.

    Raises IntegrityError if a sync has failed since the machine was started.
    """
    marker = layout.root / _MARKER
    if marker.exists() and marker.read_text() == boot_id:
        raise IntegrityError(
            f"{layout.root}: a sync has failed since this machine was started, so what can be read here may not be on "
            "disk; reboot (every byte is checked then), or start with an empty data_dir"
        )
    return marker.exists()


def forget_failure(layout: Layout) -> None:
    """Clear the mark of a failed sync. Call it once every byte has been checked."""
    (layout.root / _MARKER).unlink(missing_ok=True)


class Syncer:
    """Syncs of one store.

    `sync_index` makes everything written to the index so far durable. It raises OSError and runs in any thread. Once a
    sync has failed, `failed` is set and `failure` contains the reason.
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
        """Syncs everything on the store's file system. Blocks. Raises UnavailableError if the disk fails."""
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
        """Runs rounds until no request waits."""
        loop = asyncio.get_running_loop()
        while batch := self._waiting[lane]:
            self._waiting[lane] = []
            paths = [path for path, _ in batch]
            try:
                await loop.run_in_executor(self._pools[lane], self._round, paths, self._pools[lane])
            except Exception as error:  # whatever the cause, these files may not be on disk
                self._fail(error)
            for _, done in batch:
                if not done.done():
                    self._resolve(done)
        del self._rounds[lane]

    def _resolve(self, done: asyncio.Future[None]) -> None:
        try:
            self._require_sound()
        except UnavailableError as error:
            done.set_exception(error)
        else:
            done.set_result(None)

    def _round(self, paths: Iterable[Path], pool: ThreadPoolExecutor) -> None:
        """Syncs the files in any order: nobody is notified before all of them are done.

        The record of the index's synced part (written.py) describes the previous round.
        """
        hit("store.sync.before")
        files = set(paths)
        folders = {folder for path in files for folder in self._folders(path)}
        work: list[Future[None]] = [pool.submit(self._sync_index), pool.submit(_sync, self._layout.written)]
        work += [pool.submit(_sync, path) for path in (*files, *folders)]
        errors = [error for future in work if (error := future.exception()) is not None]
        if errors:
            raise errors[0]
        hit("store.sync.after")

    def _folders(self, path: Path) -> Iterable[Path]:
        """The folders above the file: any of them may be new."""
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
            log.critical("cannot record it for the next start", extra={"error": str(second)})


def _open(path: Path) -> int:
    """Opens the file, waiting while no descriptor is free.

    A lack of descriptors is no failure of the disk. Callers have a deadline of their own.
    """
    while True:
        try:
            return os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError as error:
            if error.errno not in NOT_THE_FILE:
                raise
        time.sleep(DESCRIPTOR_PAUSE_S)


def _sync(path: Path) -> None:
    try:
        fd = _open(path)
    except FileNotFoundError:
        return  # deleted meanwhile together with its job: nothing of it has to be on disk
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
