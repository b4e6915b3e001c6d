"""The files at both ends: read, checked, allocated and written by the code that sidecars use."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from crc32c import crc32c

from rhino_core.errors import IntegrityError
from rhino_core.ids import FileEntry, StoreId
from worker_runtime.storage.allocation.allocator import FileAllocator
from worker_runtime.storage.files import rename_in
from worker_runtime.storage.incoming import Incoming
from worker_runtime.storage.layout import Layout

STORE = StoreId("transports", 0, 0, "default")


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file to send, and the checksum that its receiver has to find."""

    path: Path
    entry: FileEntry

    @classmethod
    def of(cls, path: Path) -> SourceFile:
        """Reads the file, so that it is in the page cache afterwards."""
        crc = 0
        with path.open("rb") as file:
            while data := file.read(1 << 20):
                crc = crc32c(data, crc)
        return cls(path, FileEntry(STORE, path.name, path.stat().st_size, crc))

    def chunks(self, chunk_bytes: int) -> Iterator[bytes]:
        """For gRPC, which sends `bytes` only. Raises IntegrityError before the last chunk of a damaged file."""
        fd, crc, offset = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC), 0, 0
        try:
            while offset < self.entry.size_bytes:
                data = os.pread(fd, chunk_bytes, offset)
                crc = crc32c(data, crc)
                offset += len(data)
                if not data or (offset == self.entry.size_bytes and crc != self.entry.crc32c):
                    raise IntegrityError(f"{self.path}: damaged while it was sent")
                yield data
        finally:
            os.close(fd)


class Target:
    """Where the receiver puts files: `store/000001` and so on, data files and small files in one order. Blocks."""

    def __init__(self, folder: Path) -> None:
        layout = Layout(folder)
        layout.create()
        self._layout = layout
        self._later = ThreadPoolExecutor(1, thread_name_prefix="allocate")
        self._allocator = FileAllocator(layout, lambda work: (self._later.submit(work), None)[1])
        self._numbers = itertools.count(1)

    def begin(self, size_bytes: int) -> Incoming:
        incoming = Incoming(*self._allocator.create(size_bytes, self._layout.temporary))
        incoming.reserve(self._allocator, size_bytes)
        return incoming

    def finish(self, incoming: Incoming, size_bytes: int, crc: int) -> None:
        """Raises IntegrityError for wrong bytes."""
        incoming.finish(size_bytes, crc)
        rename_in(incoming.path, self._layout.store / f"{next(self._numbers):06d}")

    def store(self, data: memoryview, crc: int) -> None:
        """A small file. Raises IntegrityError for wrong bytes."""
        incoming = self.begin(len(data))
        incoming.write((data,))
        self.finish(incoming, len(data), crc)

    def close(self) -> None:
        self._allocator.close()
        self._later.shutdown()
