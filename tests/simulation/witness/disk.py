"""The disk of a witness: writes reach it in order, some time after they were made."""

from __future__ import annotations

from collections.abc import Sequence

from rhino_core.witnesses.acceptor import Save, SaveFolded, SavePromise, SaveRecords, SaveSnapshot, Stored
from rhino_core.witnesses.messages import Record, Snapshot


class Disk:
    """Has the synced state. A crash keeps some of the first unsynced writes, and loses the others."""

    def __init__(self) -> None:
        self._cluster, self._promised, self._candidate = "", 0, ""
        self._snapshot = Snapshot()
        self.records: list[Record] = []

    @property
    def stored(self) -> Stored:
        return Stored(self._cluster, self._promised, self._candidate, self._snapshot, tuple(self.records))

    def holds(self, index: int, record: Record) -> bool:
        """Whether it has this record, alone or in its snapshot."""
        at = index - self._snapshot.last.index - 1
        return at < 0 or (at < len(self.records) and self.records[at] == record)

    def write(self, saves: Sequence[Save]) -> None:
        for save in saves:
            self._write(save)

    def _write(self, save: Save) -> None:
        match save:
            case SavePromise(cluster, generation, candidate):
                self._cluster, self._promised, self._candidate = cluster, generation, candidate
            case SaveRecords(after, records):
                self.records[after - self._snapshot.last.index :] = records
            case SaveSnapshot(snapshot):
                self._snapshot, self.records = snapshot, []
            case SaveFolded(base, witnesses, folded):
                values, _ = fold(self._snapshot, folded)
                self._snapshot = Snapshot(base, values, witnesses)
                del self.records[: len(folded)]


def fold(snapshot: Snapshot, records: Sequence[Record]) -> tuple[dict[str, bytes], tuple[str, ...]]:
    """The values and the set of witnesses after these records."""
    values, witnesses = dict(snapshot.values), snapshot.witnesses
    for record in records:
        for key, value in record.values.items():
            if value is None:
                values.pop(key, None)
            else:
                values[key] = value
        witnesses = record.witnesses or witnesses
    return values, witnesses
