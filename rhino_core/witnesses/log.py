"""The log of the journal: the newest records, above the values of all earlier ones."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from rhino_core.errors import LocalProtocolError
from rhino_core.witnesses.messages import Position, Record, Snapshot

KEPT = 1000  # committed records above the snapshot; so many more before the next fold
RECORDS_MAX, BYTES_MAX = 256, 1024 * 1024  # in one message


def majority(of: int) -> int:
    return of // 2 + 1


class Log:
    """Records with the indexes `base.index` + 1 to `last.index`. Those up to `committed` never change."""

    def __init__(self, snapshot: Snapshot, records: Sequence[Record] = (), *, kept: int = KEPT) -> None:
        self._kept = kept
        self.install(snapshot)
        self.replace(snapshot.last.index, records)

    def install(self, snapshot: Snapshot) -> None:
        """Replaces everything."""
        self.base = snapshot.last
        self.committed = snapshot.last.index
        self._values = dict(snapshot.values)
        self._sets = [(snapshot.last.index, snapshot.witnesses)]  # by the indexes of their records
        self._records: list[Record] = []

    @property
    def last(self) -> Position:
        if not self._records:
            return self.base
        return Position(self._records[-1].generation, self.base.index + len(self._records))

    @property
    def witnesses(self) -> tuple[str, ...]:
        """The newest set, even if its record is not committed (Ongaro's thesis, section 4.1)."""
        return self._sets[-1][1]

    @property
    def changed_at(self) -> int:
        """Index of the record with the newest set."""
        return self._sets[-1][0]

    def covers(self, position: Position) -> bool:
        """Whether this log and that of the leader with this position are equal up to there."""
        return position.index <= self.committed or self._at(position.index) == position

    def _at(self, index: int) -> Position | None:
        """The position at an index above the base, or at the base."""
        if index == self.base.index:
            return self.base
        if not self.base.index < index <= self.last.index:
            return None
        return Position(self._records[index - self.base.index - 1].generation, index)

    def at(self, index: int) -> Position:
        """The position at an index. Raises LocalProtocolError if the index is folded, or not in the log."""
        found = self._at(index)
        if found is None:
            raise LocalProtocolError(f"index {index} is not in the log from {self.base} to {self.last}")
        return found

    def after(self, index: int, upto: int) -> tuple[Record, ...]:
        """The records behind `index`, up to `upto`."""
        return tuple(self._records[index - self.base.index : upto - self.base.index])

    def part(self, index: int, upto: int) -> tuple[Record, ...]:
        """The same, at most as many as fit into a message, but one at least."""
        found = self.after(index, min(upto, index + RECORDS_MAX))
        sizes = accumulate(record.size_bytes for record in found)
        return found[: 1 + sum(size <= BYTES_MAX for size in sizes)]

    def replace(self, index: int, records: Sequence[Record]) -> None:
        """The log goes on with `records` behind `index`. Raises LocalProtocolError for a loss of committed records."""
        if not self.committed <= index <= self.last.index:
            raise LocalProtocolError(f"index {index}: committed are those up to {self.committed} of {self.last.index}")
        del self._records[index - self.base.index :]
        self._sets = [(at, witnesses) for at, witnesses in self._sets if at <= index]
        self._records += records
        self._sets += [(at, one.witnesses) for at, one in enumerate(records, index + 1) if one.witnesses]

    def commit(self, index: int) -> tuple[Record, ...]:
        """Returns the records that this commits."""
        first, self.committed = self.committed, max(self.committed, index)
        return self.after(first, self.committed)

    def fold(self) -> tuple[Record, ...]:
        """Moves old committed records into the snapshot once there are enough, and returns them."""
        if self.committed - self.base.index < 2 * self._kept:
            return ()
        base = self.at(self.committed - self._kept)
        folded = self.after(self.base.index, base.index)
        for record in folded:
            self._values.update({key: value for key, value in record.values.items() if value is not None})
            for key in [key for key, value in record.values.items() if value is None]:
                self._values.pop(key, None)
        del self._records[: len(folded)]
        before = [one for one in self._sets if one[0] <= base.index]
        self._sets = self._sets[len(before) - 1 :]
        self.base = base
        return folded

    @property
    def witnesses_at_base(self) -> tuple[str, ...]:
        return self._sets[0][1]

    def snapshot(self) -> Snapshot:
        return Snapshot(self.base, dict(self._values), self.witnesses_at_base)
