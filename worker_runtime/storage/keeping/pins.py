"""Versions open in sessions: they stay, whatever the floors are."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable

from rhino_core.ids import StoreId, StoreVersion, Version

LOAD_S = 10.0  # a version pinned for longer is no longer being loaded: its release may have been lost


class Pins:
    """Pins, counted per session. `clock`: monotonic seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._sessions: dict[str, Counter[StoreVersion]] = {}
        self._added_at = float("-inf")

    @property
    def loading(self) -> bool:
        """Whether a task is loading state: a recently pinned version has not been released."""
        return self._clock() < self._added_at + LOAD_S and any(self._sessions.values())

    def add(self, session: str, versions: Iterable[StoreVersion]) -> None:
        """Pin versions until the same number of releases, or until the session ends."""
        self._sessions.setdefault(session, Counter()).update(versions)
        self._added_at = self._clock()

    def release(self, session: str, versions: Iterable[StoreVersion]) -> None:
        pins = self._sessions.get(session, Counter())
        for version in versions:
            if pins[version] > 1:
                pins[version] -= 1
            else:
                del pins[version]

    def end(self, session: str) -> None:
        self._sessions.pop(session, None)

    def of(self, store: StoreId) -> set[Version]:
        return {v.version for pins in self._sessions.values() for v in pins if v.store == store}
