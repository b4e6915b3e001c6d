"""Keeps the received part of large files after a broken transfer: the next attempt can resume there.

The name of a partial file is derived from the complete file (store, name, size, checksum). So it needs no record of its
own, and the next attempt may come from another worker. Partial files may be deleted at any moment. The checksum of the
whole file is verified at its end in any case.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import threading
import time
from pathlib import Path

from rhino_core.ids import FileEntry
from worker_runtime.storage.disk.incoming import Incoming
from worker_runtime.storage.disk.layout import Layout

log = logging.getLogger(__name__)
BYTES_MIN = 1024 * 1024  # less is transferred again
COUNT_MAX = 32
AGE_S_MAX = 3600.0
_TEMPORARY = re.compile(r"^([0-9a-f]{40})\.[0-9a-f]{32}\Z")


def _key(entry: FileEntry) -> str:
    return hashlib.sha1(f"{entry.store}/{entry.name}/{entry.size_bytes}/{entry.crc32c:08x}".encode()).hexdigest()


def _changed_at(path: Path) -> float:
    """The file's modification time in monotonic seconds; a time in the future counts as now."""
    return time.monotonic() - max(0.0, time.time() - path.stat().st_mtime)


class Partials:
    """Blocks; safe for any thread. `has` and `len` never touch the disk."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._lock = threading.Lock()
        self._kept_at: dict[str, float] = {}  # monotonic seconds

    def recover(self, *, same_boot: bool) -> None:
        """At a start, before temporary files are removed: keep the received parts of an earlier process.

        After a reboot nothing is kept, because any of the bytes may be gone.
        """
        for path in self._layout.partial.iterdir():
            self._kept_at[path.name] = _changed_at(path)
        for path in self._layout.tmp.iterdir():
            if (match := _TEMPORARY.match(path.name)) and (size := path.stat().st_size) >= BYTES_MIN:
                self._kept_at[match[1]] = _changed_at(path)
                os.truncate(path, size)  # releases space reserved behind the end
                path.rename(self._layout.partial / match[1])
        if not same_boot:
            self.clear()
        self.trim()

    def temporary(self, entry: FileEntry) -> Path:
        """The path for a file during its transfer."""
        path = self._layout.temporary()
        return path.with_name(f"{_key(entry)}.{path.name}") if entry.size_bytes >= BYTES_MIN else path

    def has(self, entry: FileEntry) -> bool:
        return _key(entry) in self._kept_at

    def __len__(self) -> int:
        return len(self._kept_at)

    def keep(self, entry: FileEntry, incoming: Incoming) -> None:
        """The file's transfer broke: keep the received part, unless it is too small or already complete."""
        if not BYTES_MIN <= incoming.size_bytes < entry.size_bytes:
            incoming.abort()
            return
        with self._lock:
            incoming.suspend(self._layout.partial / _key(entry))
            self._kept_at[_key(entry)] = time.monotonic()
        self.trim()

    def take(self, entry: FileEntry) -> Incoming | None:
        """The received part of the file, to be resumed, or None. No other caller gets it meanwhile."""
        with self._lock:
            if self._kept_at.pop(_key(entry), None) is None:
                return None
            path = self.temporary(entry)
            (self._layout.partial / _key(entry)).rename(path)
        incoming = Incoming.resumed(path)
        if incoming.size_bytes < entry.size_bytes:
            return incoming
        incoming.abort()
        return None

    def trim(self) -> None:
        """Deletes the oldest partial files: those beyond COUNT_MAX, and those not resumed for AGE_S_MAX."""
        with self._lock:
            newest_first = sorted(self._kept_at, key=lambda key: self._kept_at[key], reverse=True)
            oldest = time.monotonic() - AGE_S_MAX
            self._drop([*newest_first[COUNT_MAX:], *(k for k in newest_first if self._kept_at[k] < oldest)])

    def clear(self) -> bool:
        """Deletes all partial files. Returns whether there were any."""
        with self._lock:
            found = list(self._kept_at)
            self._drop(found)
        return bool(found)

    def _drop(self, keys: list[str]) -> None:
        for key in keys:
            if self._kept_at.pop(key, None) is not None:
                (self._layout.partial / key).unlink(missing_ok=True)
        if keys:
            log.info("unfinished files deleted", extra={"files": len(keys)})
