"""The invariants. The watch sees disks, and what managers tell the outside; never a core."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rhino_core.witnesses.messages import Position, Record, Snapshot
from tests.simulation.witness.disk import Disk, fold
from tests.simulation.witness.world import World


class Watch:
    """`history`: all committed records; the first one has index 1. `witnesses`: the committed set.

    `finished`: keys of the writes that have returned. `disks`: also those of lost witnesses.
    """

    def __init__(self, world: World, disks: Mapping[str, Disk]) -> None:
        self._fail = world.fail
        self._disks = disks
        self.history: list[Record] = []
        self.witnesses: tuple[str, ...] = ()
        self.finished: set[str] = set()
        self._keys: set[str] = set()  # of committed writes
        self._committed_by: list[int] = []  # generations of the leaders, by index
        self._elected: dict[int, Position] = {}  # the end of the adopted log, by generation

    def state(self, upto: int | None = None) -> tuple[dict[str, bytes], tuple[str, ...]]:
        return fold(Snapshot(), self.history[:upto])

    def elected(self, manager: str, generation: int, last: Position) -> None:
        """A generation has one leader. It has all records that leaders of lower generations have committed."""
        if generation in self._elected:
            self._fail(f"{manager}: generation {generation} has two leaders")
        self._elected[generation] = last
        older = sum(by < generation for by in self._committed_by)
        if last.index < older:
            self._fail(f"{manager}: the leader of {generation} begins at {last}, and lacks records up to {older}")

    def committed(self, manager: str, generation: int, first: int, records: Sequence[Record]) -> None:
        """There is one history. `generation`: of the manager as a leader; 0: it does not lead."""
        if first > len(self.history) + 1:
            self._fail(f"{manager}: a gap between {len(self.history)} and {first}")
        for index, record in enumerate(records, first):
            if index > len(self.history):
                self._commit(manager, generation, index, record)
            elif record != self.history[index - 1]:
                self._fail(f"{manager}: two histories at {index}: {record}, before {self.history[index - 1]}")

    def _commit(self, manager: str, by: int, index: int, record: Record) -> None:
        """A leader with a successor gets nothing more committed. So many disks have the record that no majority of the
        present set is without it.
        """
        for generation, last in self._elected.items():
            if generation > by and index > last.index:
                self._fail(f"{manager} of {by} commits {index} after the election of {generation}")
        present, self.witnesses = self.witnesses, record.witnesses or self.witnesses
        self.history.append(record)
        self._committed_by.append(by)
        self._keys.update(key for key, value in record.values.items() if value is not None)
        for witnesses in (present, self.witnesses):
            without = [one for one in witnesses if not self._disks[one].holds(index, record)]
            if witnesses and len(without) > len(witnesses) // 2:
                self._fail(f"{manager}: {index} was committed, and {without} of {witnesses} do not have it on disk")

    def restored(self, manager: str, snapshot: Snapshot) -> None:
        """A snapshot is the effect of the history."""
        index = snapshot.last.index
        if index > len(self.history) or (dict(snapshot.values), snapshot.witnesses) != self.state(index):
            self._fail(f"{manager}: a wrong snapshot at {index}")

    def leads(self, manager: str, index: int, values: Mapping[str, bytes]) -> None:
        """A leader knows the whole journal up to its first write."""
        if dict(values) != self.state(index)[0]:
            self._fail(f"{manager}: leads, and does not know the journal")

    def done(self, manager: str, key: str) -> None:
        """A write that has returned is in the history."""
        if key not in self._keys:
            self._fail(f"{manager}: {key} has returned and is not committed")
        self.finished.add(key)
