"""Start of a store: compares index and disk, and finds out which life of the store this is."""

from __future__ import annotations

import logging
import os
import shutil
import uuid
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from rhino.failpoints import hit
from worker_runtime.storage.files import Layout, verify
from worker_runtime.storage.index import Index, StoredFile

log = logging.getLogger(__name__)
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def recover(layout: Layout, index: Index, boot_id: str) -> list[StoredFile]:
    """The files that are here for certain. Drops index entries without a right file, and files without an entry.

    After a reboot every byte is checked, because not everything was synced; otherwise of files whose size or time has
    changed.
    """
    deep = index.meta("boot_id") != boot_id
    records = list(index.files())
    with ThreadPoolExecutor(max_workers=4, thread_name_prefix="recover") as pool:
        sound = list(pool.map(lambda record: _sound(layout, record, deep=deep), records))
    kept = [record for record, ok in zip(records, sound, strict=True) if ok]
    dropped = [record for record, ok in zip(records, sound, strict=True) if not ok]
    for record in dropped:
        log.warning("dropped a damaged or missing file", extra={"file": f"{record.entry.store}/{record.entry.name}"})
        hit("recovery.drop.before")
        index.delete_files(record.entry.store, [record.entry.name])
        hit("recovery.drop.after")
    orphans = _remove_orphans(layout, kept)
    hit("recovery.boot_id.before")
    index.put_meta("boot_id", boot_id)
    hit("recovery.boot_id.after")
    log.info(
        "store recovered",
        extra={"files": len(kept), "dropped": len(dropped), "orphans_removed": orphans, "all_bytes_checked": deep},
    )
    return kept


def _sound(layout: Layout, record: StoredFile, *, deep: bool) -> bool:
    return verify(layout.path(record.entry.store, record.entry.name), record.seal, record.entry.crc32c, deep=deep)


def _remove_orphans(layout: Layout, kept: Iterable[StoredFile]) -> int:
    """Files that never made it into the index, empty folders, leftovers of sessions, and temporary files."""
    known = {layout.path(record.entry.store, record.entry.name) for record in kept}
    removed = 0
    for folder, _, names in os.walk(layout.store, topdown=False):
        for name in names:
            path = Path(folder, name)
            if path not in known:
                hit("recovery.orphan.before")
                path.unlink()
                hit("recovery.orphan.after")
                removed += 1
        if folder != str(layout.store) and not os.listdir(folder):  # of a forgotten job, if anything
            os.rmdir(folder)
    for rubbish in (layout.tmp, layout.spare, layout.inbox):
        shutil.rmtree(rubbish, ignore_errors=True)
    layout.create()
    return removed


def boot_id() -> str:
    """Changes with every boot of the machine: what was not synced may be gone."""
    return _BOOT_ID.read_text().strip()


def incarnation(layout: Layout, index: Index, boot: str) -> str:
    """`<store uuid>/<boot id>`. The uuid lies in a file and in the index: if either is lost, so are files."""
    path = layout.root / "store-uuid"
    stored = path.read_text().strip() if path.exists() else None
    if stored is None or stored != index.meta("store_uuid"):
        stored = str(uuid.uuid4())
        temporary = path.with_suffix(".new")
        temporary.write_text(stored)
        hit("incarnation.file.before")
        temporary.rename(path)
        hit("incarnation.file.after")
        hit("incarnation.index.before")
        index.put_meta("store_uuid", stored)
        hit("incarnation.index.after")
    return f"{stored}/{boot}"
