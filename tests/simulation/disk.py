"""A simulated worker's disk: what a crash of the process leaves, and what a loss of power does."""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import NamedTuple

from rhino.ids import Epoch, FileEntry, GroupId, StoreId, StoreVersion, Version

SYNC_S = 1.0  # the operating system writes back what is older
Key = tuple[StoreId, str]
Files = Mapping[str, FileEntry]


class _Names(NamedTuple):
    changelog: str
    zip_: str


@functools.lru_cache(maxsize=1 << 12)
def _names(version: Version) -> _Names:
    return _Names(f"{version}.changelog", f"{version}.zip")


def openings(files: Files, version: Version) -> Iterator[frozenset[str]]:
    """Every set of names from which `version` opens (ARCHITECTURE.md, "Closure")."""
    names = _names(version)
    if (whole := _snapshot(files, names.zip_)) is not None:
        yield whole
    changelog = files.get(names.changelog)
    if changelog is None:
        return
    replayed = {changelog.name}
    for base in reversed(changelog.lineage):
        names = _names(base)
        if (whole := _snapshot(files, names.zip_)) is not None:
            yield whole | replayed
        if names.changelog not in files:
            return
        replayed.add(names.changelog)
    first = changelog.lineage[0] if changelog.lineage else version
    if first.version == 1 and _names(first).zip_ not in files:
        yield frozenset(replayed)


def _snapshot(files: Files, zip_name: str) -> frozenset[str] | None:
    """The zip and what it names, if all of it is here."""
    zip_ = files.get(zip_name)
    if zip_ is None:
        return None
    names = frozenset((zip_name, *zip_.references))
    return names if files.keys() >= names else None


def opens(files: Files, version: Version) -> bool:
    return next(openings(files, version), None) is not None


@dataclass
class Disk:
    """Files by store, the visible ones, the highest epochs, floors. `rotten`: flipped bits nobody has noticed yet.

    `slow_s`: seconds that each write takes longer than it should.
    `written_s` and `before`: when a file came and what an epoch was before, for what is not synced.
    """

    uuid: int = 1
    boot: int = 1
    full: bool = False
    slow_s: float = 0.0
    files: dict[StoreId, dict[str, FileEntry]] = field(default_factory=lambda: defaultdict(dict))
    visible: set[Key] = field(default_factory=set)
    rotten: set[Key] = field(default_factory=set)
    written_s: dict[Key, float] = field(default_factory=dict)
    epochs: dict[GroupId, Epoch] = field(default_factory=dict)
    before: dict[GroupId, tuple[float, Epoch | None]] = field(default_factory=dict)
    floors: dict[StoreId, Version] = field(default_factory=dict)

    @property
    def incarnation(self) -> str:
        return f"{self.uuid}.{self.boot}"

    def holds(self, version: StoreVersion) -> bool:
        """Really: without rotten files."""
        files = self.files.get(version.store, {})
        if self.rotten:
            files = {name: entry for name, entry in files.items() if (version.store, name) not in self.rotten}
        return opens(files, version.version)

    def put(self, entry: FileEntry, now: float) -> None:
        self.files[entry.store][entry.name] = entry
        self.written_s[entry.store, entry.name] = now

    def put_epoch(self, group: GroupId, epoch: Epoch, now: float) -> None:
        self.before[group] = now, self.epochs.get(group)
        self.epochs[group] = epoch

    def drop(self, store: StoreId, name: str) -> None:
        """The file goes; zips that name it are no longer whole, so they are hidden."""
        del self.files[store][name]
        self.visible.discard((store, name))
        self.rotten.discard((store, name))
        for zip_ in self.files[store].values():
            if name in zip_.references:
                self.visible.discard((store, zip_.name))

    def lose_power(self, now: float, random: Random) -> None:
        """A new boot: what was not synced may be gone, and the check of every byte finds what is torn or rotten."""
        self.boot += 1
        for store, files in self.files.items():
            for name in sorted(files):
                unsynced = self.written_s[store, name] > now - SYNC_S
                if (store, name) in self.rotten or (unsynced and random.random() < 0.5):
                    self.drop(store, name)
        for group, (when, former) in self.before.items():
            if when > now - SYNC_S and random.random() < 0.5:
                if former is None:
                    self.epochs.pop(group, None)
                else:
                    self.epochs[group] = former
        self.before.clear()
