"""Versions that were pushed to this worker and of which it still lacks files."""

from __future__ import annotations

from rhino_core.ids import GroupId, StoreId
from worker_runtime.protocol.keys import FileKey


class IncompleteVersions:
    """The pushed file of each such version. It is acknowledged again when its closure is complete."""

    def __init__(self) -> None:
        self._names: dict[StoreId, set[str]] = {}

    def __contains__(self, key: FileKey) -> bool:
        return key.name in self._names.get(key.store, ())

    def names(self, store: StoreId) -> list[str]:
        names = self._names.get(store)
        return sorted(names) if names else []

    def any_of(self, group: GroupId) -> bool:
        return any(store.group == group for store in self._names)

    def add(self, key: FileKey) -> None:
        self._names.setdefault(key.store, set()).add(key.name)

    def discard(self, key: FileKey) -> None:
        names = self._names.get(key.store)
        if names is not None:
            names.discard(key.name)
            if not names:
                del self._names[key.store]

    def forget_group(self, group: GroupId) -> None:
        self._names = {store: names for store, names in self._names.items() if store.group != group}

    def check_invariants(self) -> None:
        assert all(self._names.values()), "a store without incomplete versions is kept"
