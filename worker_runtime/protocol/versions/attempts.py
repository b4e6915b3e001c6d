"""Finds attempts at one version that no query can name any more.

A failed query restarts at its newest logged version and writes the next version under a new id. While it fails at the
same batch, it logs nothing, so no floor rises. Each restart then leaves one more attempt at the version.

An attempt with a later version built on it may be the logged one. All other attempts of former runs are given up. Those
of the current run can still be logged, and are the newest ones. They are few, because Spark limits how often it repeats
a task.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Protocol

from rhino_core.ids import FileEntry, Version
from rhino_core.lineage import union

ATTEMPTS_KEPT = 64  # per version; Spark gives up after far fewer failures of a task or a stage


class Versions(Protocol):
    """The part of a store's catalogue in use here."""

    def rising(self) -> Iterable[Version]: ...
    def changelogs(self) -> Iterable[FileEntry]: ...
    def arrival(self, version: Version) -> int: ...


def given_up(store: Versions, pins: Iterable[Version] = ()) -> frozenset[Version]:
    """Versions without a later version built on them, and with ATTEMPTS_KEPT later arrivals of the same number.

    `pins` are never given up.
    """
    crowds = [crowd for crowd in _by_number(store) if len(crowd) > ATTEMPTS_KEPT]
    if not crowds:
        return frozenset()
    built_upon = union(changelog.lineage for changelog in store.changelogs()).union(pins)
    found: set[Version] = set()
    for crowd in crowds:
        newest_first = sorted(crowd, key=store.arrival, reverse=True)
        found.update(version for version in newest_first[ATTEMPTS_KEPT:] if version not in built_upon)
    return frozenset(found)


def crowded(store: Versions) -> bool:
    """Whether the store may have attempts to give up."""
    return any(len(crowd) > ATTEMPTS_KEPT for crowd in _by_number(store))


def _by_number(store: Versions) -> Iterable[list[Version]]:
    return (list(crowd) for _, crowd in itertools.groupby(store.rising(), key=lambda version: version.version))
