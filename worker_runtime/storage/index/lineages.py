"""Long lineages in the index: each version has a pointer to the preceding one, under one key for all changelogs.

A record then contains the length of its lineage and its last version: a few bytes instead of a list that grows as long
as the query runs without a snapshot. Short lineages stay in the record.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from typing import Any

from rhino_core.errors import IntegrityError
from rhino_core.ids import StoreId, Version
from rhino_core.lineage import LONG, Lineage, plain

_Links = dict[Version, Version]  # each version to the preceding one


class Lineages:
    """The pointers of all stores, as in the index."""

    def __init__(self) -> None:
        self._links: dict[StoreId, _Links] = {}
        self._ends: dict[StoreId, dict[Version, Lineage]] = {}  # by the last version, while the index is being read

    def load(self, store: StoreId, version: Version, value: bytes) -> None:
        """Adds a pointer that the index contains."""
        self._links.setdefault(store, {})[version] = Version(*json.loads(value)[:2])

    def encode(self, store: StoreId, lineage: Sequence[Version]) -> tuple[Any, list[tuple[Version, bytes]]]:
        """The record's lineage as JSON, and the pointers to write with it."""
        if len(lineage) < LONG:
            return plain(lineage), []
        links, versions = self._links.get(store, {}), list(lineage)
        pairs = list(itertools.pairwise(versions))
        if any(links.get(version, before) != before for before, version in pairs):
            return plain(lineage), []  # another lineage had a different predecessor; never seen with Spark
        missing = [(version, json.dumps(before).encode()) for before, version in pairs if version not in links]
        return {"versions": len(lineage), "last": list(lineage[-1])}, missing

    def written(self, store: StoreId, pointers: Sequence[tuple[Version, bytes]]) -> None:
        """The index now contains these pointers."""
        for version, value in pointers:
            self.load(store, version, value)

    def decode(self, store: StoreId, value: Any) -> Sequence[Version]:
        """The lineage of a record. Raises IntegrityError if a pointer is missing."""
        if not isinstance(value, dict):
            return tuple(Version(*version[:2]) for version in value)
        length, last = int(value["versions"]), Version(*value["last"][:2])
        links, ends, backwards = self._links.get(store, {}), self._ends.setdefault(store, {}), [last]
        found = Lineage()
        while len(backwards) < length:
            before = links.get(backwards[-1])
            if before is None:
                raise IntegrityError(f"{store}: the index does not know what was before version {backwards[-1]}")
            known = ends.get(before)
            if known is not None and len(known) >= length - len(backwards):
                found = known.end(length - len(backwards))
                break
            backwards.append(before)
        for version in reversed(backwards):
            found = ends[version] = found.then(version, len(found) + 1)
        return found

    def loaded(self) -> None:
        """All records have been decoded: free the temporary data."""
        self._ends = {}

    def below(self, store: StoreId, number: int | None) -> list[Version]:
        """Versions up to `number` with a pointer; all if None."""
        return [v for v in self._links.get(store, ()) if number is None or v.version <= number]

    def dropped(self, store: StoreId, versions: Sequence[Version]) -> None:
        """The index no longer contains these pointers."""
        links = self._links.get(store, {})
        for version in versions:
            links.pop(version, None)
        if not links:
            self._links.pop(store, None)
