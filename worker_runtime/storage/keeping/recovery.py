"""Starts a store: compares index and disk, and determines the store's incarnation."""

from __future__ import annotations

import logging
import os
import re
import shutil
import uuid
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from rhino_core.errors import IntegrityError, InvalidRequestError, NoSpaceError, PreconditionError
from rhino_core.failpoints import hit
from rhino_core.folder import FILE_MODE, subfolder
from rhino_core.ids import StoreId, check_store, parse_name
from worker_runtime.storage.disk.disk import Disk
from worker_runtime.storage.disk.files import verify
from worker_runtime.storage.disk.layout import Layout
from worker_runtime.storage.disk.partials import Partials
from worker_runtime.storage.disk.syncer import forget_failure
from worker_runtime.storage.index.arrivals import Arrivals
from worker_runtime.storage.index.index import Index
from worker_runtime.storage.index.stored_file import StoredFile

log = logging.getLogger(__name__)
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_UUID = "store-uuid"
ON_DISK_UNTIL = "on_disk_until"  # nanoseconds of arrivals.py; written by flusher.py
# Including the folders of `rhino verify`.
_TEMPORARY = re.compile(r"^([0-9a-f]{32}|[0-9a-f]{40}(\.[0-9a-f]{32})?|verify-\w+)\Z")


@dataclass(frozen=True, slots=True)
class Recovered:
    """The content of the data folder, as a start has found it.

    `records`: files certainly here. `same_boot`: the machine has not been rebooted since the last start. `partly_read`:
    after a reboot, only doubtful files were read.
    """

    boot_id: str
    incarnation: str
    records: list[StoredFile]
    partials: Partials
    arrivals: Arrivals
    same_boot: bool
    partly_read: bool


def open_index(layout: Layout, disk: Disk, boot_id: str, *, empty_store: bool) -> Index:
    """Opens the index. On a full disk, first deletes unfinished files.

    Raises PreconditionError if the index is lost, and IntegrityError if it is damaged, unless its files may be deleted
    (`empty_store`). Raises AlreadyThereError while another process has the index open, NoSpaceError.
    """
    stored = None if (layout.index / "CURRENT").exists() else next(_stored(layout), None)
    if stored is not None and not empty_store:
        raise PreconditionError(
            f"{layout.index}: the index is lost, and {layout.store} has files ({stored} is one), which mean nothing "
            "without it; restore the index, or start with --empty-store: it deletes these files, and other workers "
            "send their copies"
        )
    try:
        return Index(layout.index, disk, boot_id)
    except NoSpaceError as error:
        log.warning("no space for the index, deleting unfinished files", extra={"error": str(error)})
        clear_temporary(layout, layout.partial)  # no other process uses the folder: the error would be a different one
    except IntegrityError as error:
        if not empty_store:
            raise
        log.error("beginning with an empty store", extra={"error": str(error)})
        layout.index.rename(layout.temporary())  # it is deleted from there
        subfolder(layout.index)
    return Index(layout.index, disk, boot_id)


def clear_temporary(layout: Layout, *more: Path) -> None:
    """Deletes the remains of earlier sessions and transfers. Needs neither the index nor disk space."""
    for folder in (layout.tmp, layout.preallocated, layout.inbox, *more):
        for path in list(folder.iterdir()):
            if not _TEMPORARY.match(path.name):
                log.warning("not a file of Rhino's, left alone", extra={"path": str(path)})
            elif path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)


def recover_folder(layout: Layout, index: Index, boot_id: str, *, failed: bool) -> Recovered:
    """Makes index and folder agree. Blocks. `failed`: a sync had failed before the machine was rebooted.

    Raises IntegrityError if the index is damaged or cannot be written, NoSpaceError.
    """
    same_boot, on_disk_until = index.metadata("boot_id") == boot_id, index.metadata(ON_DISK_UNTIL)
    partials = Partials(layout)
    partials.recover(same_boot=same_boot)
    clear_temporary(layout)  # before anything is written, because writing needs space
    incarnation = find_incarnation(layout, index, boot_id)
    # Files that arrived later than this may not be on disk: all, if a sync had failed. None: all are on disk.
    doubtful_after_ns = None if same_boot else -1 if failed else int(on_disk_until or -1)
    records = recover(layout, index, boot_id, doubtful_after_ns)
    forget_failure(layout)
    return Recovered(
        boot_id,
        incarnation,
        records,
        partials,
        # `on_disk_until` may be later than the arrival of every file here.
        Arrivals(max((record.arrived_ns for record in records), default=0), int(on_disk_until or 0)),
        same_boot=same_boot,
        partly_read=doubtful_after_ns is not None and doubtful_after_ns >= 0,
    )


def recover(layout: Layout, index: Index, boot_id: str, doubtful_after_ns: int | None) -> list[StoredFile]:
    """The files that are certainly here. Drops index records without an intact file, and files without a record.

    Checks every byte of files that arrived after `doubtful_after_ns`, and of files with a changed time.
    """
    records = list(index.files())
    doubtful = {id(r) for r in records if doubtful_after_ns is not None and r.arrived_ns > doubtful_after_ns}
    with ThreadPoolExecutor(max_workers=4, thread_name_prefix="recover") as pool:
        sound = list(pool.map(lambda record: _sound(layout, record, deep=id(record) in doubtful), records))
    kept = [record for record, ok in zip(records, sound, strict=True) if ok]
    dropped = [record for record, ok in zip(records, sound, strict=True) if not ok]
    for record in dropped:
        log.warning("dropped a damaged or missing file", extra={"file": f"{record.entry.store}/{record.entry.name}"})
        hit("recovery.drop.before")
        index.delete_files(record.entry.store, [record.entry.name])
        hit("recovery.drop.after")
    orphans = _remove_orphans(layout, kept)
    hit("recovery.boot_id.before")
    index.put_metadata("boot_id", boot_id)
    hit("recovery.boot_id.after")
    log.info(
        "store recovered",
        extra={"files": len(kept), "dropped": len(dropped), "orphans_removed": orphans, "read": len(doubtful)},
    )
    return kept


def _sound(layout: Layout, record: StoredFile, *, deep: bool) -> bool:
    return verify(layout.path(record.entry.store, record.entry.name), record.seal, record.entry.crc32c, deep=deep)


def _remove_orphans(layout: Layout, kept: Iterable[StoredFile]) -> int:
    """Deletes files without an index record, and empty folders. Returns the number of files."""
    known = {layout.path(record.entry.store, record.entry.name) for record in kept}
    orphans = [path for path in _stored(layout) if path not in known]
    for path in orphans:
        hit("recovery.orphan.before")
        path.unlink()
        hit("recovery.orphan.after")
    for folder, _, _ in os.walk(layout.store, topdown=False):
        if folder != str(layout.store) and not os.listdir(folder):  # if anything, left by a forgotten job
            os.rmdir(folder)
    return len(orphans)


def _stored(layout: Layout) -> Iterator[Path]:
    """Files below `store` with names that Rhino creates."""
    for folder, _, names in os.walk(layout.store):
        for name in names:
            path = Path(folder, name)
            if _is_stored(path.relative_to(layout.store)):
                yield path
            else:
                log.warning("not a file of Rhino's, left alone", extra={"path": str(path)})


def _is_stored(relative: Path) -> bool:
    try:
        job, operator, partition, store, *name = relative.parts
        check_store(StoreId(job, int(operator), int(partition), store))
        parse_name("/".join(name))
    except (ValueError, InvalidRequestError):
        return False
    return True


def boot_id() -> str:
    """An id of the machine's boot: each boot has another one. After a boot, unsynced bytes may be gone."""
    return _BOOT_ID.read_text().strip()


def find_incarnation(layout: Layout, index: Index, boot: str) -> str:
    """The incarnation of the store: `<store uuid>/<boot id>`.

    The uuid is stored in a file and in the index. If either is lost, files may be lost as well, so the uuid is
    replaced.
    """
    path = layout.root / _UUID
    stored = path.read_text().strip() if path.exists() else None
    if stored is None or stored != index.metadata("store_uuid"):
        stored = str(uuid.uuid4())
        temporary = path.with_suffix(".new")
        temporary.write_text(stored)
        temporary.chmod(FILE_MODE)
        hit("incarnation.file.before")
        temporary.rename(path)
        hit("incarnation.file.after")
        hit("incarnation.index.before")
        index.put_metadata("store_uuid", stored)
        hit("incarnation.index.after")
    return f"{stored}/{boot}"
