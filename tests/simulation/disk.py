"""A simulated worker's disk: what a crash of the process leaves, and what a loss of power does."""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import NamedTuple

from rhino_core.ids import DiskState, Epoch, FileEntry, FileKind, GroupId, StoreId, StoreVersion, Version, Worker
from tests.simulation.variety import FAMILIES

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
    """Every set of names from which `version` opens (docs/design/closure.md)."""
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
    if first.version == 1 and changelog.store.store != FAMILIES:
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

    `slow_s`: seconds that each write takes longer than it should. `failing`: it refuses every write until the sidecar
    is started again.
    `written_s` and `before`: when a file came and what an epoch was before, for what is not synced.
    """

    uuid: int = 1
    boot: int = 1
    full: bool = False
    failing: bool = False
    slow_s: float = 0.0
    files: dict[StoreId, dict[str, FileEntry]] = field(default_factory=lambda: defaultdict(dict))
    visible: set[Key] = field(default_factory=set)
    rotten: set[Key] = field(default_factory=set)
    written_s: dict[Key, float] = field(default_factory=dict)
    arrived_ns: dict[Key, int] = field(default_factory=dict)  # as the index has it
    epochs: dict[GroupId, Epoch] = field(default_factory=dict)
    before: dict[GroupId, tuple[float, Epoch | None, tuple[str, ...]]] = field(default_factory=dict)
    members: dict[GroupId, tuple[str, ...]] = field(default_factory=dict)  # under these epochs
    floors: dict[StoreId, Version] = field(default_factory=dict)
    fences: dict[str, Epoch] = field(default_factory=dict)  # of forgotten jobs
    known: tuple[Worker, ...] = ()  # workers, as the manager said last
    first_snapshots: set[tuple[StoreId, Version]] = field(default_factory=set)  # that ever were here

    @property
    def incarnation(self) -> str:
        return f"{self.uuid}.{self.boot}"

    @property
    def state(self) -> DiskState:
        """As its worker reports it."""
        if self.failing:
            return DiskState.FAILING
        return DiskState.FULL if self.full else DiskState.OK

    @property
    def takes_files(self) -> bool:
        return self.state is DiskState.OK

    def holds(self, version: StoreVersion) -> bool:
        """Really: without rotten files."""
        return opens(self.sound_files(version.store), version.version)

    def sound_files(self, store: StoreId) -> Files:
        files = self.files.get(store, {})
        if self.rotten:
            files = {name: entry for name, entry in files.items() if (store, name) not in self.rotten}
        return files

    def put(self, entry: FileEntry, now: float, arrived_ns: int) -> None:
        self.files[entry.store][entry.name] = entry
        if entry.kind is FileKind.SNAPSHOT and entry.version is not None and entry.version.version == 1:
            self.first_snapshots.add((entry.store, entry.version))
        self.written_s[entry.store, entry.name] = now
        self.arrived_ns[entry.store, entry.name] = arrived_ns

    def put_epoch(self, group: GroupId, epoch: Epoch, members: tuple[str, ...], now: float) -> None:
        self.before[group] = now, self.epochs.get(group), self.members.get(group, ())
        self.epochs[group], self.members[group] = epoch, members

    def drop(self, store: StoreId, name: str) -> None:
        """The file goes; zips that name it are no longer whole, so they are hidden."""
        del self.files[store][name]
        self.visible.discard((store, name))
        self.rotten.discard((store, name))
        del self.written_s[store, name], self.arrived_ns[store, name]
        for zip_ in self.files[store].values():
            if name in zip_.references and zip_.kind is FileKind.SNAPSHOT:
                self.visible.discard((store, zip_.name))

    def epoch(self, group: GroupId) -> Epoch | None:
        """The highest one persisted; the fence of a forgotten job is above all that it had."""
        known = [epoch for epoch in (self.epochs.get(group), self.fences.get(group.job)) if epoch is not None]
        return max(known, default=None)

    def drop_job(self, job: str, fence: Epoch, groups: Collection[GroupId]) -> None:
        """The fence in, and everything of these groups out."""
        self.fences[job] = fence
        for store in [store for store in self.files if store.group in groups]:
            for name in list(self.files[store]):
                self.drop(store, name)
            del self.files[store]
        self.epochs = {group: epoch for group, epoch in self.epochs.items() if group not in groups}
        self.members = {group: members for group, members in self.members.items() if group not in groups}
        self.before = {group: before for group, before in self.before.items() if group not in groups}
        self.floors = {store: floor for store, floor in self.floors.items() if store.group not in groups}
        self.first_snapshots = {first for first in self.first_snapshots if first[0].group not in groups}

    def lose_power(self, now: float, random: Random, *, synced: bool) -> None:
        """A new boot: what was not synced may be gone, and the check of every byte finds what is torn or rotten.

        `synced`: files were, before anybody heard of them; epochs were not.
        """
        self.boot += 1
        for store, files in self.files.items():
            for name in sorted(files):
                unsynced = not synced and self.written_s[store, name] > now - SYNC_S
                if (store, name) in self.rotten or (unsynced and random.random() < 0.5):
                    self.drop(store, name)
        for group, (when, former, members) in self.before.items():
            if when > now - SYNC_S and random.random() < 0.5:
                if former is None:
                    self.epochs.pop(group, None)
                    self.members.pop(group, None)
                else:
                    self.epochs[group], self.members[group] = former, members
        self.before.clear()
