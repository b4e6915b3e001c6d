"""Which files open a version, and which nobody needs any more (ARCHITECTURE.md, "Closure" and "Retention").

Pure bookkeeping over names: a catalogue says which files of a store are on local disk. `holds` is true exactly when
Spark's `loadWithCheckpointId` could open the version from these files alone; it never looks behind the lineage in
the version's own changelog. Incremental checkpoints of Rhino 4.2.2 are the shared data files of several snapshots.
"""

from __future__ import annotations

import bisect
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass

from rhino.ids import FileEntry, FileKind, GroupId, StoreId, Version, parse_name

ZIP_AFTER_FILES_S = 120.0  # a snapshot's zip comes at most this long after a data file that only it names


def changelog_name(version: Version) -> str:
    return f"{version}.changelog"


def snapshot_name(version: Version) -> str:
    return f"{version}.zip"


@dataclass(frozen=True, slots=True)
class CataloguedFile:
    """An entry with its parsed name. `arrived_s`: seconds of any clock of this worker."""

    entry: FileEntry
    kind: FileKind
    version: Version | None
    arrived_s: float


class StoreCatalogue:
    """The files of one store that are on local disk, visible or not."""

    def __init__(self, entries: Iterable[FileEntry] = ()) -> None:
        self._files: dict[str, CataloguedFile] = {}
        self._changelogs: dict[Version, FileEntry] = {}
        self._snapshots: dict[Version, FileEntry] = {}
        self._data_files: dict[int, dict[str, FileEntry]] = {}  # by size
        self._versions: list[Version] = []  # of changelogs and zips, rising
        self._held: dict[Version, bool] = {}  # what `holds` has found since a file came or went
        for entry in entries:
            self.add(entry)

    def add(self, entry: FileEntry, arrived_s: float = 0.0) -> None:
        kind, version = parse_name(entry.name)
        self._files[entry.name] = CataloguedFile(entry, kind, version, arrived_s)
        if version is None:
            self._data_files.setdefault(entry.size_bytes, {})[entry.name] = entry
        else:
            if version not in self._changelogs and version not in self._snapshots:
                bisect.insort(self._versions, version)
            self._of_kind(kind)[version] = entry
        self._held.clear()

    def discard(self, name: str) -> None:
        file = self._files.pop(name, None)
        if file is not None and file.version is None:
            of_size = self._data_files[file.entry.size_bytes]
            del of_size[name]
            if not of_size:
                del self._data_files[file.entry.size_bytes]
        elif file is not None and file.version is not None:
            del self._of_kind(file.kind)[file.version]
            if file.version not in self._changelogs and file.version not in self._snapshots:
                del self._versions[bisect.bisect_left(self._versions, file.version)]
        self._held.clear()

    def get(self, name: str) -> FileEntry | None:
        file = self._files.get(name)
        return file.entry if file else None

    def __contains__(self, name: object) -> bool:
        return name in self._files

    def __len__(self) -> int:
        return len(self._files)

    def files(self) -> Iterable[CataloguedFile]:
        return self._files.values()

    def entries(self) -> Iterator[FileEntry]:
        return (file.entry for file in self._files.values())

    def data_files(self, size_bytes: int) -> list[FileEntry]:
        """Those of this size."""
        return list(self._data_files.get(size_bytes, {}).values())

    def twins(self, entry: FileEntry) -> list[FileEntry]:
        """Data files with the very same bytes as this one, under other names (`FileEntry.same_as`)."""
        if entry.kind.versioned:
            return []
        same = (entry.content, entry.crc32c)
        alike = self.data_files(entry.size_bytes)
        return [other for other in alike if other.name != entry.name and (other.content, other.crc32c) == same]

    def versions(self) -> set[Version]:
        """Versions of which at least the changelog or the zip is here."""
        return self._changelogs.keys() | self._snapshots.keys()

    def whole_snapshots_with(self, name: str) -> list[str]:
        """Names of the zips that are whole and are, or reference, the file `name`."""
        found = [zip_ for zip_ in self._snapshots.values() if name == zip_.name or name in zip_.references]
        return sorted(zip_.name for zip_ in found if self._files.keys() >= set(zip_.references))

    def has_snapshot(self, name: str) -> bool:
        """The zip `name` is here with every file that it references."""
        file = self._files.get(name)
        return file is not None and self._files.keys() >= set(file.entry.references)

    def holds(self, version: Version) -> bool:
        """The whole closure of `version` is here; true for version 0, which is empty."""
        held = self._held.get(version)
        if held is None:
            held = self._held[version] = next(self.closures(version), None) is not None
        return held

    def closures(self, version: Version) -> Iterator[frozenset[str]]:
        """Every complete set of names from which `version` opens, the one with the newest snapshot first."""
        if version.version == 0:
            yield frozenset()
            return
        if (whole := self._whole_snapshot(version)) is not None:
            yield whole
        changelog = self._changelogs.get(version)
        if changelog is None:
            return
        replayed = {changelog.name}
        for base in reversed(changelog.lineage):
            if (whole := self._whole_snapshot(base)) is not None:
                yield whole | replayed
            if (replayable := self._changelogs.get(base)) is None:
                return
            replayed.add(replayable.name)
        if self._replayable_from_nothing(changelog.lineage[0] if changelog.lineage else version):
            yield frozenset(replayed)

    def closure(self, version: Version) -> frozenset[str] | None:
        """The closure with the newest snapshot, or None when the version is not held."""
        return next(self.closures(version), None)

    def cheapest_closure(self, version: Version, have: Container[str]) -> frozenset[str] | None:
        """The closure with the fewest bytes outside `have`, or None when the version is not held."""

        def bytes_to_fetch(names: frozenset[str]) -> int:
            return sum(self._files[name].entry.size_bytes for name in names if name not in have)

        return min(self.closures(version), key=bytes_to_fetch, default=None)

    def missing(self, version: Version) -> frozenset[str]:
        """The fewest names whose arrival would, as far as is known here, complete `version`; empty when held.

        A zip that is not here counts only when nothing else can complete the version: it may never have been written.
        """
        if self.holds(version):
            return frozenset()
        changelog = self._changelogs.get(version)
        options = [self._snapshot_missing(version)] if version in self._snapshots else []
        if changelog is None:
            return min([*options, frozenset({changelog_name(version)})], key=len)
        replayed: frozenset[str] = frozenset()
        for base in reversed(changelog.lineage):
            if base in self._snapshots:
                options.append(self._snapshot_missing(base) | replayed)
            replayed |= {changelog_name(base)} - self._files.keys()
        oldest = changelog.lineage[0] if changelog.lineage else version
        if self._replayable_from_nothing(oldest):
            options.append(replayed)
        return min(options, key=len, default=(replayed - {changelog_name(oldest)}) | {snapshot_name(oldest)})

    def reach(self, *versions: Version) -> set[str]:
        """Names of every file here that any closure of these versions may use, complete or not."""
        bases = set(versions)
        for version in versions:
            if (changelog := self._changelogs.get(version)) is not None:
                bases.update(changelog.lineage)
        names: set[str] = set()
        for base in bases:
            if (changelog := self._changelogs.get(base)) is not None:
                names.add(changelog.name)
            if (zip_ := self._snapshots.get(base)) is not None:
                names.add(zip_.name)
                names.update(zip_.references)
        return names & self._files.keys()

    def newest_first(self) -> Iterator[Version]:
        """Versions of which at least the changelog or the zip is here; ids break ties, so that the order is stable."""
        return reversed(self._versions)

    def newest_held(self) -> Version | None:
        """The first that is held, newest first."""
        return next((version for version in self.newest_first() if self.holds(version)), None)

    def _replayable_from_nothing(self, first: Version) -> bool:
        """Changelogs from version 1 on suffice, unless version 1 has a snapshot.

        Spark writes one with version 1 when the store has column families (joins of state format 3 and 4): it alone
        names them, and a replay onto an empty database fails without those names.
        """
        return first.version == 1 and first not in self._snapshots

    def _of_kind(self, kind: FileKind) -> dict[Version, FileEntry]:
        return self._changelogs if kind is FileKind.CHANGELOG else self._snapshots

    def _whole_snapshot(self, version: Version) -> frozenset[str] | None:
        """The names of the zip and of every file it references, if all of them are here."""
        zip_ = self._snapshots.get(version)
        if zip_ is None:
            return None
        names = frozenset((zip_.name, *zip_.references))
        return names if self._files.keys() >= names else None

    def _snapshot_missing(self, version: Version) -> frozenset[str]:
        return frozenset(self._snapshots[version].references) - self._files.keys()


class Catalogue:
    """The stores of one worker."""

    def __init__(self) -> None:
        self._stores: dict[StoreId, StoreCatalogue] = {}
        self._groups: dict[GroupId, set[StoreId]] = {}

    def add(self, entry: FileEntry, arrived_s: float = 0.0) -> None:
        self.store(entry.store).add(entry, arrived_s)

    def discard(self, store: StoreId, name: str) -> None:
        if store in self._stores:
            self._stores[store].discard(name)

    def store(self, store: StoreId) -> StoreCatalogue:
        """The store's catalogue, an empty one when nothing of it is here."""
        found = self._stores.get(store)
        if found is None:
            found = self._stores[store] = StoreCatalogue()
            self._groups.setdefault(store.group, set()).add(store)
        return found

    def forget(self, group: GroupId) -> None:
        """Nothing of the group is here any more."""
        for store in self._groups.pop(group, ()):
            del self._stores[store]

    def get(self, store: StoreId, name: str) -> FileEntry | None:
        return self._stores[store].get(name) if store in self._stores else None

    def groups(self) -> Iterable[GroupId]:
        return self._groups.keys()

    def job_known(self, job: str) -> bool:
        return any(group.job == job for group in self._groups)

    def stores(self, group: GroupId | None = None) -> Mapping[StoreId, StoreCatalogue]:
        """All stores, or those of one group."""
        if group is None:
            return self._stores
        return {store: self._stores[store] for store in self._groups.get(group, ())}


def kept_names(
    catalogue: StoreCatalogue, floor: Version | None, pins: Iterable[Version] = (), busy: Iterable[str] = ()
) -> frozenset[str]:
    """Names that must stay: everything unless the floor's closure is here; else what versions at or above it reach.

    `pins`: versions that a session has open. `busy`: names that some operation works on right now.
    """
    if floor is None or not catalogue.holds(floor):
        return frozenset(file.entry.name for file in catalogue.files())
    versions = {version for version in catalogue.versions() if version.version >= floor.version}
    kept = {*busy, *catalogue.reach(floor, *versions, *pins)}
    zips = [f for f in catalogue.files() if f.kind is FileKind.SNAPSHOT]
    kept_zips = [f for f in zips if f.entry.name in kept]
    newest_zip_s = max((f.arrived_s for f in kept_zips), default=float("-inf"))
    kept.update(name for f in kept_zips for name in f.entry.references if name in catalogue)
    named = {name for f in zips for name in f.entry.references}
    for file in catalogue.files():
        # A data file that no zip names may belong to a snapshot whose zip is still on its way: another snapshot may
        # have overtaken it.
        unnamed = file.version is None and file.entry.name not in named
        if unnamed and file.arrived_s >= newest_zip_s - ZIP_AFTER_FILES_S:
            kept.add(file.entry.name)
    return frozenset(kept)


_DELETE_ORDER = {FileKind.SNAPSHOT: 0, FileKind.CHANGELOG: 1, FileKind.SST: 2, FileKind.LOG: 2}


def collectable(
    catalogue: StoreCatalogue, floor: Version | None, pins: Iterable[Version] = (), busy: Iterable[str] = ()
) -> tuple[str, ...]:
    """Names that may be deleted, in this order: zips before the files they name."""
    kept = kept_names(catalogue, floor, pins, busy)
    return delete_order(file for file in catalogue.files() if file.entry.name not in kept)


def delete_order(files: Iterable[CataloguedFile]) -> tuple[str, ...]:
    """Their names, zips before the files they name."""
    return tuple(file.entry.name for file in sorted(files, key=lambda f: (_DELETE_ORDER[f.kind], f.entry.name)))


_PULL_ORDER = {FileKind.SST: 0, FileKind.LOG: 0, FileKind.SNAPSHOT: 1, FileKind.CHANGELOG: 2}


def wanted(local: StoreCatalogue, remote: Iterable[FileEntry], floor: Version | None) -> tuple[FileEntry, ...]:
    """What a member pulls during catch-up: files of others above the floor that are not here.

    Data files first (of the same bytes under several names the first one, of which the others are links then), then the
    zips that name them, so that a snapshot is whole as soon as its zip is here; changelogs last, so that none seems to
    open without a snapshot that it needs.
    """
    theirs = {entry.name: entry for entry in remote if entry.name not in local}
    kept = kept_names(StoreCatalogue([*local.entries(), *theirs.values()]), floor)
    found = [entry for name, entry in theirs.items() if name in kept]
    return tuple(sorted(found, key=lambda entry: (_PULL_ORDER[entry.kind], bool(entry.same_as), entry.name)))


def raise_floor(current: Version | None, proposed: Version) -> Version:
    """Floors are monotone: the higher number wins, an equal number keeps the current one."""
    return proposed if current is None or proposed.version > current.version else current
