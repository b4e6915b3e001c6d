"""Groups waiting for repair, and groups short of members that were tried in vain."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

from rhino_core.ids import GroupId, ReplicaGroup

Ids = dict[GroupId, None]  # a set with an order: that of time


class Waiting:
    """Groups with the fewest whole members come first: they need another copy most. Equal groups come in order of
    arrival.

    A group short of members waits, or *rests*: it was tried, and nothing could be done. There may be 100 000 of them
    when many workers are lost at once. Each new worker wakes the resting ones.
    """

    def __init__(self, short: Iterable[GroupId] = ()) -> None:
        """`short`: groups short of members. They rest."""
        self._by_whole: dict[int, Ids] = {}
        self._whole: dict[GroupId, int] = {}  # of groups that wait: their number of whole members
        self._resting: Ids = dict.fromkeys(short)

    def __len__(self) -> int:
        return len(self._whole)

    def __contains__(self, group: object) -> bool:
        return group in self._whole

    def add(self, group: ReplicaGroup) -> None:
        """The group waits from now on, if it does not already. It comes earlier if it has fewer whole members now."""
        name, whole = group.group, sum(member.whole for member in group.members)
        if self._whole.get(name) != whole:
            self.discard(name)
            self._whole[name] = whole
            self._by_whole.setdefault(whole, {})[name] = None
        self._resting.pop(name, None)

    def discard(self, name: GroupId) -> None:
        """The group does not wait, and does not rest."""
        self._resting.pop(name, None)
        whole = self._whole.pop(name, None)
        if whole is not None:
            del self._by_whole[whole][name]
            if not self._by_whole[whole]:
                del self._by_whole[whole]

    def take(self, count: int) -> list[GroupId]:
        """Removes and returns the first groups."""
        names: list[GroupId] = []
        for whole in sorted(self._by_whole):
            names += itertools.islice(self._by_whole[whole], count - len(names))
        for name in names:
            self.discard(name)
        return names

    def rest(self, name: GroupId) -> None:
        """The group is short of members, and nothing can be done now. Changes nothing if it waits."""
        if name not in self._whole:
            self._resting[name] = None

    def resting(self) -> list[GroupId]:
        return list(self._resting)

    def check_invariants(self, short: Iterable[GroupId]) -> None:
        assert set(self._resting) == {name for name in short if name not in self._whole}, "a short group is forgotten"
