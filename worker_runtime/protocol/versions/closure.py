"""Files that open a version, and files that nobody needs any more (ARCHITECTURE.md, "Closure" and "Retention").

Pure bookkeeping over names: a catalogue lists the files of a store on local disk. `holds` is true exactly when Spark's
`loadWithCheckpointId` can open the version from these files alone. Spark never looks behind the lineage in the
version's own changelog. The incremental checkpoints of Rhino 4.2.2 correspond to data files shared by several
snapshots.
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass

from rhino_core.ids import FileEntry, FileKind, GroupId, StoreId, Version, parse_name
from rhino_core.lineage import union
from worker_runtime.protocol.versions.attempts import given_up

ZIP_AFTER_FILES_S = 120.0  # a snapshot's zip arrives at most this long after a data file that only it names


def changelog_name(version: Version) -> str:
    return f"{version}.changelog"


def snapshot_name(version: Version) -> str:
    return f"{version}.zip"


@dataclass(frozen=True, slots=True)
class CataloguedFile:
    """An entry with its parsed name.

    `arrived_s`: seconds of any clock of this worker. `number`: position in the order of arrival.
    """

    entry: FileEntry
    kind: FileKind
    version: Version | None
    arrived_s: float
    number: int


class StoreCatalogue:
    """The files of one store on local disk, visible or not."""

    def __init__(self, entries: Iterable[FileEntry] = (), first_snapshots: Iterable[Version] = ()) -> None:
        """`first_snapshots`: versions 1 with a known snapshot, here or elsewhere."""
        self.first_snapshots = set(first_snapshots)
        self._files: dict[str, CataloguedFile] = {}
        self._numbers = itertools.count()
        self._changelogs: dict[Version, FileEntry] = {}
        self._snapshots: dict[Version, FileEntry] = {}
        self._data_files: dict[int, dict[str, FileEntry]] = {}  # data files by size in bytes
        self._versions: list[Version] = []  # of changelogs and zips, ascending
        self._held: dict[Version, bool] = {}  # cached results of `holds`, valid until a file is added or removed
        for entry in entries:
            self.add(entry)

    def add(self, entry: FileEntry, arrived_s: float = 0.0) -> None:
        kind, version = parse_name(entry.name)
        self._files[entry.name] = CataloguedFile(entry, kind, version, arrived_s, next(self._numbers))
        if version is None:
            self._data_files.setdefault(entry.size_bytes, {})[entry.name] = entry
        else:
            if version not in self._changelogs and version not in self._snapshots:
                bisect.insort(self._versions, version)
            self._of_kind(kind)[version] = entry
            if version.version == 1 and (kind is FileKind.SNAPSHOT or entry.references):
                self.first_snapshots.add(version)
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
        """Data files of this size."""
        return list(self._data_files.get(size_bytes, {}).values())

    def twins(self, entry: FileEntry) -> list[FileEntry]:
        """Data files with exactly the same bytes as this one under other names (`FileEntry.same_as`)."""
        if entry.kind.versioned:
            return []
        same = (entry.content, entry.crc32c)
        alike = self.data_files(entry.size_bytes)
        return [other for other in alike if other.name != entry.name and (other.content, other.crc32c) == same]

    def versions(self) -> set[Version]:
        """Versions with at least the changelog or the zip here."""
        return self._changelogs.keys() | self._snapshots.keys()

    def whole_snapshots_with(self, name: str) -> list[str]:
        """Names of the complete zips that are, or reference, the file `name`."""
        found = [zip_ for zip_ in self._snapshots.values() if name == zip_.name or name in zip_.references]
        return sorted(zip_.name for zip_ in found if self._files.keys() >= set(zip_.references))

    def holds(self, version: Version) -> bool:
        """Whether the whole closure of `version` is here. True for version 0: it is empty."""
        if version not in self._changelogs and version not in self._snapshots:
            return version.version == 0  # not cached: callers may ask for any version
        held = self._held.get(version)
        if held is None:
            held = self._held[version] = next(self.closures(version), None) is not None
        return held

    def holds_closure(self, entry: FileEntry) -> bool:
        """Whether the version of this file counts as held. A changelog needs its whole closure, a zip all its files.

        A zip's version might open without the zip. But once the zip's commit has returned, Spark writes changelogs that
        open only with this snapshot. Tasks wait for the commits of these changelogs, so these commits would wait for
        gigabytes on the bulk lane.
        """
        if entry.version is None:
            return True
        if entry.kind is FileKind.SNAPSHOT:
            return self._whole_snapshot(entry.version) is not None
        return self.holds(entry.version)

    def closures(self, version: Version) -> Iterator[frozenset[str]]:
        """Every complete closure of `version`, the one with the newest snapshot first."""
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
        """The closure with the newest snapshot, or None if the version is not held."""
        return next(self.closures(version), None)

    def cheapest_closure(self, version: Version, have: Container[str]) -> frozenset[str] | None:
        """The closure with the fewest bytes outside `have`, or None if the version is not held."""

        def bytes_to_fetch(names: frozenset[str]) -> int:
            return sum(self._files[name].entry.size_bytes for name in names if name not in have)

        return min(self.closures(version), key=bytes_to_fetch, default=None)

    def missing(self, version: Version) -> frozenset[str]:
        """The smallest set of names to complete `version`, as far as known here; empty if it is held.

        A missing zip counts only if nothing else can complete the version: it may never have been written.
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
        """Names of all files here in any closure of these versions, complete or not."""
        changelogs = (self._changelogs.get(version) for version in versions)
        bases = union(changelog.lineage for changelog in changelogs if changelog is not None).union(versions)
        names: set[str] = set()
        for base in bases:
            if (changelog := self._changelogs.get(base)) is not None:
                names.add(changelog.name)
            if (zip_ := self._snapshots.get(base)) is not None:
                names.add(zip_.name)
                names.update(zip_.references)
        return names & self._files.keys()

    def rising(self) -> Iterable[Version]:
        """The versions of `newest_first` in ascending order."""
        return self._versions

    def changelogs(self) -> Iterable[FileEntry]:
        return self._changelogs.values()

    def arrival(self, version: Version) -> int:
        """Arrival number of the version's changelog or zip here, the earlier one if both are.

        Later arrivals have higher numbers.
        """
        entries = (self._changelogs.get(version), self._snapshots.get(version))
        return min(self._files[entry.name].number for entry in entries if entry is not None)

    def named_by(self, versions: Iterable[Version]) -> set[str]:
        """Changelogs and zips of these versions, and data files named only by those zips."""
        names = {changelog_name(version) for version in versions}
        zips = {snapshot_name(version) for version in versions}
        theirs = {name for zip_ in self._snapshots.values() if zip_.name in zips for name in zip_.references}
        others = {name for zip_ in self._snapshots.values() if zip_.name not in zips for name in zip_.references}
        return (names | zips | (theirs - others)) & self._files.keys()

    def newest_first(self) -> Iterator[Version]:
        """Versions with at least the changelog or the zip here. Ids break ties, so the order is stable."""
        return reversed(self._versions)

    def newest_held(self) -> Version | None:
        """The newest held version, or None."""
        return next((version for version in self.newest_first() if self.holds(version)), None)

    def _replayable_from_nothing(self, first: Version) -> bool:
        """Whether the changelogs from version 1 on suffice. They do unless version 1 has, or had, a snapshot.

        Spark writes a snapshot with version 1 if the store has column families (joins of state format 3 and 4). Only
        this snapshot names the column families, and a replay onto an empty database fails without these names.
        """
        return first.version == 1 and first not in self.first_snapshots

    def _of_kind(self, kind: FileKind) -> dict[Version, FileEntry]:
        return self._changelogs if kind is FileKind.CHANGELOG else self._snapshots

    def _whole_snapshot(self, version: Version) -> frozenset[str] | None:
        """The names of the zip and of every file it references, if all of them are here; else None."""
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
        self._groups: dict[GroupId, dict[StoreId, None]] = {}  # stores in order of arrival

    def add(self, entry: FileEntry, arrived_s: float = 0.0) -> None:
        self._kept(entry.store).add(entry, arrived_s)

    def had_snapshot(self, store: StoreId, version: Version) -> None:
        """Records a version 1 after the loss of its zip: changelogs alone do not open the store."""
        self._kept(store).first_snapshots.add(version)

    def discard(self, store: StoreId, name: str) -> None:
        if store in self._stores:
            self._stores[store].discard(name)

    def store(self, store: StoreId) -> StoreCatalogue:
        """The store's catalogue. If nothing of the store is here, an empty catalogue that is not kept."""
        found = self._stores.get(store)
        return StoreCatalogue() if found is None else found

    def _kept(self, store: StoreId) -> StoreCatalogue:
        found = self._stores.get(store)
        if found is None:
            found = self._stores[store] = StoreCatalogue()
            self._groups.setdefault(store.group, {})[store] = None
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
        """All stores, or the stores of one group."""
        if group is None:
            return self._stores
        return {store: self._stores[store] for store in self._groups.get(group, ())}


def kept_names(
    catalogue: StoreCatalogue, floor: Version | None, pins: Iterable[Version] = (), in_use: Iterable[str] = ()
) -> frozenset[str]:
    """Names to keep: all, unless the floor's closure is here; then only those in reach of versions at or above the
    floor.

    `pins`: versions open in a session. `in_use`: names in use by an operation. Attempts given up by a failing query
    (attempts.py) need not stay, whether the floor's closure is here or not.
    """
    pins = tuple(pins)
    over = given_up(catalogue, pins)
    if floor is None or not catalogue.holds(floor):
        everything = (file.entry.name for file in catalogue.files())
        gone = catalogue.named_by(over) - catalogue.reach(*pins).union(in_use) if over else set()
        return frozenset(name for name in everything if name not in gone)
    versions = {version for version in catalogue.versions() if version.version >= floor.version} - over
    kept = {*in_use, *catalogue.reach(floor, *versions, *pins)}
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
    catalogue: StoreCatalogue, floor: Version | None, pins: Iterable[Version] = (), in_use: Iterable[str] = ()
) -> tuple[str, ...]:
    """Deletable names, in deletion order: zips before the files they name."""
    kept = kept_names(catalogue, floor, pins, in_use)
    return delete_order(file for file in catalogue.files() if file.entry.name not in kept)


def delete_order(files: Iterable[CataloguedFile]) -> tuple[str, ...]:
    """The names of `files`, zips before the files they name."""
    return tuple(file.entry.name for file in sorted(files, key=lambda f: (_DELETE_ORDER[f.kind], f.entry.name)))


_PULL_ORDER = {FileKind.SST: 0, FileKind.LOG: 0, FileKind.SNAPSHOT: 1, FileKind.CHANGELOG: 2}


def wanted(local: StoreCatalogue, remote: Iterable[FileEntry], floor: Version | None) -> tuple[FileEntry, ...]:
    """The files to pull during catch-up: files of others above the floor, missing here.

    Data files come first. If the same bytes have several names, the first name comes first, and the others can then be
    links to it. Next come their zips, so a snapshot is whole as soon as its zip is here. Changelogs come last, so none
    appears to open without its snapshot. Otherwise files keep the order of arrival at the other members.
    """
    theirs = {entry.name: entry for entry in remote if entry.name not in local}
    # Local files count as later arrivals. Otherwise attempts that were deleted here would be fetched again.
    kept = kept_names(StoreCatalogue([*theirs.values(), *local.entries()], local.first_snapshots), floor)
    found = [entry for name, entry in theirs.items() if name in kept]
    return pull_order(found)


def pull_order(entries: Iterable[FileEntry]) -> tuple[FileEntry, ...]:
    """In the order in which they may come (`wanted`); otherwise as they are."""
    return tuple(sorted(entries, key=lambda entry: (_PULL_ORDER[entry.kind], bool(entry.same_as))))


def raise_floor(current: Version | None, proposed: Version) -> Version:
    """Floors never fall: the higher number wins, and an equal number keeps the current floor."""
    return proposed if current is None or proposed.version > current.version else current
