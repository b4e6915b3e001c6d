"""The records of a witness in the index of its sidecar: the journal of the cluster's managers.

Keys: `w/promise`, `w/base` (the snapshot's last position and witnesses), `w/v/<key>` (the snapshot's values),
`w/r/<index>`, and `w/name`. An index that has lost records does not open, or its store begins a new life with another
uuid. So a witness never forgets a promise under the same name.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence

from rocksdict import WriteBatch

from rhino_core.failpoints import hit
from rhino_core.rpc.witnesses import record_of, record_to_pb
from rhino_core.witnesses.acceptor import Save, SaveFolded, SavePromise, SaveRecords, SaveSnapshot, Stored
from rhino_core.witnesses.messages import Position, Snapshot
from rhino_pb.witness_pb2 import JournalRecord
from worker_runtime.storage.index.index import Index

_ALL, _PROMISE, _BASE, _VALUES, _RECORDS, _NAME = b"w/", b"w/promise", b"w/base", b"w/v/", b"w/r/", b"w/name"


class WitnessTable:
    """Reads and writes these records. `write` returns when they survive kill -9; `Index.sync` puts them on disk."""

    def __init__(self, index: Index) -> None:
        self._index = index
        self._end = max((int(key) for key, _ in index.values(_RECORDS)), default=0)  # the last index

    def name(self, store: str) -> str:
        """The name of this witness: the uuid of its store, unless it has forgotten a journal."""
        return (self._index.value(_NAME) or store.encode()).decode()

    def forget(self) -> None:
        """Deletes the journal. The witness has another name then, as one with an empty disk."""
        batch = WriteBatch(raw_mode=True)
        for key, _ in self._index.values(_ALL):
            batch.delete(_ALL + key.encode())
        batch.put(_NAME, str(uuid.uuid4()).encode())
        self._index.write_batch("journal of the managers", batch)
        self._index.sync()
        self._end = 0

    def stored(self) -> Stored:
        cluster, promised, candidate = json.loads(self._index.value(_PROMISE) or b'["", 0, ""]')
        last, witnesses = self._base()
        values = dict(self._index.values(_VALUES))
        records = tuple(record_of(JournalRecord.FromString(value)) for _, value in self._index.values(_RECORDS))
        return Stored(cluster, promised, candidate, Snapshot(last, values, witnesses), records)

    def _base(self) -> tuple[Position, tuple[str, ...]]:
        generation, index, *witnesses = json.loads(self._index.value(_BASE) or b"[0, 0]")
        return Position(generation, index), tuple(witnesses)

    def write(self, saves: Sequence[Save]) -> None:
        """Writes all of them, atomically. Raises NoSpaceError and IntegrityError, and then has changed nothing."""
        hit("store.witness.before")
        batch, end = WriteBatch(raw_mode=True), self._end
        for save in saves:
            match save:
                case SavePromise(cluster, generation, candidate):
                    batch.put(_PROMISE, json.dumps([cluster, generation, candidate]).encode())
                case SaveRecords(after, records):
                    for index in range(after + len(records) + 1, end + 1):
                        batch.delete(_key(index))
                    for index, record in enumerate(records, after + 1):
                        batch.put(_key(index), record_to_pb(record).SerializeToString())
                    end = after + len(records)
                case SaveFolded():
                    _fold(batch, save)
                case SaveSnapshot(snapshot):
                    self._replace(batch, snapshot, end)
                    end = snapshot.last.index
        self._index.write_batch("journal of the managers", batch)
        self._end = end
        hit("store.witness.after")

    def _replace(self, batch: WriteBatch, snapshot: Snapshot, end: int) -> None:
        for index in range(self._base()[0].index + 1, end + 1):
            batch.delete(_key(index))
        for key, _ in self._index.values(_VALUES):
            batch.delete(_VALUES + key.encode())
        for key, value in snapshot.values.items():
            batch.put(_VALUES + key.encode(), value)
        batch.put(_BASE, json.dumps([*snapshot.last, *snapshot.witnesses]).encode())


def _key(index: int) -> bytes:
    return _RECORDS + b"%020d" % index


def _fold(batch: WriteBatch, save: SaveFolded) -> None:
    for record in save.records:
        for key, value in record.values.items():
            if value is None:
                batch.delete(_VALUES + key.encode())
            else:
                batch.put(_VALUES + key.encode(), value)
    for index in range(save.base.index - len(save.records) + 1, save.base.index + 1):
        batch.delete(_key(index))
    batch.put(_BASE, json.dumps([*save.base, *save.witnesses]).encode())
