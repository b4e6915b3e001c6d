"""Decides on the files to keep in a store: by floors, and by use. removal.py deletes the rest."""

from __future__ import annotations

import contextlib
import logging
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import AbstractContextManager

from rhino_core.errors import RhinoError
from rhino_core.failpoints import hit
from rhino_core.ids import FileEntry, GroupId, StoreId, StoreVersion, Version
from worker_runtime.protocol.versions.closure import Catalogue, collectable, kept_names, raise_floor
from worker_runtime.storage.index.index import Index

LOAD_S = 10.0  # a version pinned for longer is no longer being loaded: its release may have been lost


class Pins:
    """Pins, counted per session. `clock`: monotonic seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._sessions: dict[str, Counter[StoreVersion]] = {}
        self._kept: Counter[StoreVersion] = Counter()
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

    @contextlib.contextmanager
    def keeping(self, versions: Collection[StoreVersion]) -> Iterator[None]:
        """Pins the versions meanwhile. No task loads them, so nothing yields to them."""
        self._kept.update(versions)
        try:
            yield
        finally:
            self._kept.subtract(versions)
            self._kept = +self._kept

    def of(self, store: StoreId) -> set[Version]:
        return {v.version for pins in (self._kept, *self._sessions.values()) for v in pins if v.store == store}


log = logging.getLogger(__name__)
_NOTHING = contextlib.nullcontext()


class Retention:
    """Floors never fall. They survive a restart; protection ends with the process."""

    def __init__(self, catalogue: Catalogue, index: Index, pins: Pins) -> None:
        self._catalogue = catalogue
        self._index = index
        self._pins = pins
        self._floors: dict[StoreId, Version] = index.floors()
        self._protected: Counter[tuple[StoreId, str]] = Counter()

    # ------------------------------------------------------------ floors

    def floor(self, store: StoreId) -> Version | None:
        return self._floors.get(store)

    def floors_of(self, group: GroupId) -> list[StoreVersion]:
        return [StoreVersion(store, floor) for store, floor in self._floors.items() if store.group == group]

    def raise_floor(self, store: StoreId, floor: Version) -> bool:
        """Raises the floor. It never falls. Returns true if it changed."""
        current = self._floors.get(store)
        if raise_floor(current, floor) == current:
            return False
        self._floors[store] = floor
        hit("store.floor.before")
        try:
            self._index.put_floor(store, floor)
        except RhinoError as error:  # the manager will send it again
            log.error("floor not kept", extra={"store": str(store), "error": str(error)})
        hit("store.floor.after")
        return True

    def forget(self, groups: set[GroupId]) -> None:
        self._floors = {store: floor for store, floor in self._floors.items() if store.group not in groups}

    # ------------------------------------------------------------ exceptions

    def protecting(self, store: StoreId, names: Collection[str]) -> AbstractContextManager[None]:
        """Keeps these files meanwhile: their zip is being taken over."""
        return self._protecting([(store, name) for name in names]) if names else _NOTHING

    @contextlib.contextmanager
    def _protecting(self, keys: list[tuple[StoreId, str]]) -> Iterator[None]:
        self._protected.update(keys)
        try:
            yield
        finally:
            self._protected.subtract(keys)
            self._protected = +self._protected

    def protected(self, store: StoreId) -> set[str]:
        """Names referenced by a zip during its takeover."""
        return {name for of, name in self._protected if of == store}

    # ------------------------------------------------------------ decisions

    def inventory(self, group: GroupId) -> list[FileEntry]:
        """The files of a group for other workers: all files not released by the floors here."""
        found: list[FileEntry] = []
        for store, catalogue in self._catalogue.stores(group).items():
            kept = kept_names(catalogue, self.floor(store))
            found += [entry for entry in catalogue.entries() if entry.name in kept]
        return found

    def collectable(self, store: StoreId, busy: Iterable[str]) -> tuple[str, ...]:
        """Names of files that no version at or above the floor, no pin and nothing in `busy` needs."""
        kept = self.protected(store).union(busy)
        return collectable(self._catalogue.store(store), self.floor(store), self._pins.of(store), kept)
