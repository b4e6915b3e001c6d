"""A file of the store, and its record in the index."""

from __future__ import annotations

import json
from dataclasses import dataclass

from rhino_core.ids import FileEntry, StoreId
from worker_runtime.storage.files import Seal
from worker_runtime.storage.lineages import Lineages


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file in the store. `received`: it came from another worker; else an executor of this worker wrote it."""

    entry: FileEntry
    seal: Seal
    arrived_ns: int  # by a monotonic clock (arrivals.py); records of an older Rhino have the wall clock
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
            # Otherwise the format of earlier versions, which they can read. They ignore what follows `same_as`.
            *([entry.same_as] if entry.same_as or entry.branch_of else []),
            *([entry.branch_of] if entry.branch_of else []),
            *([entry.branch_operator] if entry.branch_operator is not None else []),
        ]
    ).encode()


def decode(store: StoreId, name: str, value: bytes, lineages: Lineages) -> StoredFile:
    size, crc, lineage, references, written_by, seal, arrived_ns, visible, received, *rest = json.loads(value)
    entry = FileEntry(
        store,
        name,
        size,
        crc,
        lineage=lineages.decode(store, lineage),
        references=tuple(references),
        written_by=written_by,
        same_as=rest[0] if rest else "",
        branch_of=rest[1] if len(rest) > 1 else "",
        branch_operator=rest[2] if len(rest) > 2 else None,
    )
    return StoredFile(entry, Seal(*seal[:2]), arrived_ns, visible, received)
