"""A file of the store, and its record in the index."""

from __future__ import annotations

import json
from dataclasses import dataclass

from rhino_core.ids import FileEntry, StoreId
from worker_runtime.storage.disk.files import Seal
from worker_runtime.storage.index.lineages import Lineages


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file in the store. `received`: it came from another worker; else an executor of this worker wrote it."""

    entry: FileEntry
    seal: Seal
    arrived_ns: int  # by a monotonic clock (arrivals.py)
    visible: bool
    received: bool


def encode(file: StoredFile, lineage: object) -> bytes:
    entry = file.entry
    return json.dumps(
        [
            entry.size_bytes,
            entry.crc32c,
            lineage,
            entry.references,
            entry.written_by,
            [file.seal.size_bytes, file.seal.mtime_ns],
            file.arrived_ns,
            file.visible,
            file.received,
            entry.same_as,
            entry.branch_of,
            entry.branch_operator,
        ]
    ).encode()


def decode(store: StoreId, name: str, value: bytes, lineages: Lineages) -> StoredFile:
    size, crc, lineage, references, written_by, seal, arrived_ns, visible, received, *others = json.loads(value)
    same_as, branch_of, branch_operator = others[:3]  # what follows, a newer Rhino has added
    entry = FileEntry(
        store,
        name,
        size,
        crc,
        lineage=lineages.decode(store, lineage),
        references=tuple(references),
        written_by=written_by,
        same_as=same_as,
        branch_of=branch_of,
        branch_operator=branch_operator,
    )
    return StoredFile(entry, Seal(*seal[:2]), arrived_ns, visible, received)
