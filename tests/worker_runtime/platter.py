"""The files that would be on disk after a loss of power: a shim that remembers what was synced, and only that.

`install` (in the sidecar's process) copies, whenever something has been synced, that to the folder `platter`: the bytes
of a file by inode, the entries of a folder, the index. `rebuild` makes a data folder of it: a file or folder that is in
no synced folder is not there, and one whose own bytes were never synced is empty. Syncs of RocksDB's own files within
RocksDB are left out: the index is as at the last `Index.sync`.
"""

from __future__ import annotations

import json
import os
import shutil
import stat
import threading
import time
import uuid
from pathlib import Path

from worker_runtime.storage.index.index import Index
from worker_runtime.storage.keeping import recovery


def install(data_dir: Path, platter: Path, boot_id: str) -> None:
    """From now on in this process; the machine has the given boot id. Empties the platter."""
    shutil.rmtree(platter, ignore_errors=True)
    for folder in ("files", "folders", "tmp"):
        (platter / folder).mkdir(parents=True)
    real_fsync, real_index_sync = os.fsync, Index.sync
    lock = threading.Lock()  # an older state may not be published after a newer one

    def fsync(fd: int) -> None:
        inode = os.fstat(fd).st_ino
        path = Path(os.readlink(f"/proc/self/fd/{fd}"))
        with lock:
            if stat.S_ISDIR(os.fstat(fd).st_mode):
                hidden = ("index", "tmp", "inbox") if path == data_dir else ()
                entries = [entry for entry in os.scandir(path) if entry.name not in hidden]
                names = {entry.name: (entry.inode(), entry.is_dir()) for entry in entries}
                kind, content = "folders", json.dumps(names).encode()
            else:
                kind, content = "files", path.read_bytes()
            real_fsync(fd)
            temporary = platter / "tmp" / uuid.uuid4().hex
            temporary.write_bytes(content)
            temporary.rename(platter / kind / str(inode))
            other = "files" if kind == "folders" else "folders"  # the inode may have been something else before
            (platter / other / str(inode)).unlink(missing_ok=True)

    def index_sync(index: Index) -> None:
        with lock:
            copy, link = (platter / "tmp" / uuid.uuid4().hex for _ in range(2))
            shutil.copytree(data_dir / "index", copy)
            real_index_sync(index)
            link.symlink_to(copy)
            link.rename(platter / "index")  # at once: this process may be killed at any moment

    shims = ((os, "fsync", fsync), (Index, "sync", index_sync), (recovery, "boot_id", lambda: boot_id))
    for owner, name, shim in shims:
        setattr(owner, name, shim)


def install_gate(closed: Path) -> None:
    """From now on every fsync in this process waits while the file `closed` exists."""
    real_fsync = os.fsync

    def fsync(fd: int) -> None:
        while closed.exists():
            time.sleep(0.01)
        real_fsync(fd)

    os.fsync = fsync  # type: ignore[assignment]


def rebuild(data_dir: Path, platter: Path) -> None:
    """Replaces a data folder by what was synced of it."""
    root = data_dir.stat().st_ino
    shutil.rmtree(data_dir)
    if (platter / "index").exists():
        shutil.copytree(platter / "index", data_dir / "index")
    _rebuild(data_dir, root, platter)


def _rebuild(path: Path, inode: int, platter: Path) -> None:
    path.mkdir(exist_ok=True)
    folder = platter / "folders" / str(inode)
    for name, (child, is_folder) in json.loads(folder.read_bytes()).items() if folder.exists() else ():
        file = platter / "files" / str(child)
        if is_folder:
            _rebuild(path / name, child, platter)
        else:
            (path / name).write_bytes(file.read_bytes() if file.exists() else b"")
