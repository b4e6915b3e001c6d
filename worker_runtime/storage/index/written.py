"""Records how much of an index was written, and how much is certainly on disk, in a small file beside the index.

RocksDB mistakes a damaged record of its log for the torn end of a killed process, and drops it with all later records.
An index with fewer entries than this file requires has lost records in this way.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import struct
import threading
import zlib
from pathlib import Path

from rhino_core.folder import sync_folder

NAME = "acknowledged"
_LAYOUT = struct.Struct(">16sQQI")  # boot, written, synced, and the crc32 of these


class Written:
    """Two of RocksDB's sequence numbers.

    `record` follows each write; written entries survive the process. `synced` follows each sync; synced entries survive
    a power loss. The recorded numbers may be too low, never too high: the file reaches the disk only when someone syncs
    it. The file is locked: only one process at a time uses the index. Safe for any thread.

    `required`: the number that an index must have at the start. It is the written number, or the synced number after a
    reboot. None: the file is damaged. `known` is false if the file is new.
    """

    def __init__(self, path: Path, boot_id: str) -> None:
        """Raises BlockingIOError while another process has the file, OSError if it cannot be created."""
        self._path = path
        self._boot = hashlib.blake2b(boot_id.encode(), digest_size=16).digest()
        self._lock = threading.Lock()
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self.known, self.required, self._synced = self._read()
        except BaseException:
            self.close()
            raise
        self.number = 0  # how much has been written since the file was opened, or before

    def _read(self) -> tuple[bool, int | None, int]:
        """Whether anything is recorded, the required number, and the synced number."""
        data = os.pread(self._file, _LAYOUT.size + 1, 0)
        if not any(data):
            return False, 0, 0  # new, or created just before a power loss
        if len(data) != _LAYOUT.size or zlib.crc32(data[:-4]) != int.from_bytes(data[-4:]):
            return True, None, 0
        boot, written, synced, _ = _LAYOUT.unpack(data)
        return True, written if boot == self._boot else synced, synced

    def begin(self, number: int) -> None:
        """The index was opened, complete, with this number. A new file is on disk when this returns. Raises OSError."""
        self._synced = min(self._synced, number)
        self.record(number)
        if not self.known:
            os.fsync(self._file)
            sync_folder(self._path.parent)

    def record(self, number: int) -> None:
        """Records the written number. Raises OSError."""
        with self._lock:
            self.number = number
            self._save()

    def synced(self, number: int) -> None:
        """Records the synced number. Raises OSError."""
        with self._lock:
            self._synced = max(self._synced, number)
            self._save()

    def _save(self) -> None:
        text = _LAYOUT.pack(self._boot, self.number, self._synced, 0)[:-4]
        os.pwrite(self._file, text + zlib.crc32(text).to_bytes(4), 0)

    def close(self) -> None:
        """Closes the file. May be called again."""
        if self._file >= 0:
            os.close(self._file)
        self._file = -1
