"""Versions that sessions have been promised: they stay whatever the floors say."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable

from rhino.ids import StoreId, StoreVersion, Version

LOAD_S = 10.0  # what is pinned for longer is not being loaded: its release may have got lost


class Pins:
    """Counted per session. `clock`: monotonic seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._sessions: dict[str, Counter[StoreVersion]] = {}
        self._added_at = float("-inf")

    @property
    def loading(self) -> bool:
        """Whether a task loads state: a version that was pinned lately has not been released."""
        return self._clock() < self._added_at + LOAD_S and any(self._sessions.values())

    def add(self, session: str, versions: Iterable[StoreVersion]) -> None:
        """Versions stay until as many releases, or the end of the session."""
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
