"""Versions that sessions have been promised: they stay whatever the floors say."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from rhino.ids import StoreId, StoreVersion, Version


class Pins:
    """Counted per session."""

    def __init__(self) -> None:
        self._sessions: dict[str, Counter[StoreVersion]] = {}

    def add(self, session: str, versions: Iterable[StoreVersion]) -> None:
        """Versions stay until as many releases, or the end of the session."""
        self._sessions.setdefault(session, Counter()).update(versions)

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
