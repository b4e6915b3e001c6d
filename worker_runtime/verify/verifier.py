"""Proves that replicas are readable databases at the version they claim.

The sidecar's index only provides the version of a store and its files. Everything else is verified independently: bytes
against checksums, the snapshot by RocksDB itself, changelogs by their own header and records.
"""

from __future__ import annotations

import enum
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from rhino_core.errors import IntegrityError, UnavailableError, UnknownError
from rhino_core.ids import FileEntry, FileKind, StoreId, Version
from worker_runtime.protocol.versions.closure import StoreCatalogue
from worker_runtime.storage.disk.files import checksum
from worker_runtime.storage.disk.layout import Layout
from worker_runtime.storage.index.database import ReadOnlyDatabase
from worker_runtime.storage.index.index import IndexReader
from worker_runtime.verify import changelog
from worker_runtime.verify.snapshot import SnapshotDatabase, UnprovenError, lay_out, unzip

ATTEMPTS = 3  # a running sidecar may collect a file between reading the index and linking the file


class Verdict(enum.Enum):
    SOUND = "sound"
    UNPROVEN = "unproven"  # no error was found, but not everything could be read
    BAD = "bad"


@dataclass(slots=True)
class StoreReport:
    """`keys`: entries at the version in all column families; None if they could not be counted."""

    store: StoreId
    version: Version | None
    snapshot: Version | None = None
    changelogs: int = 0
    keys: int | None = None
    problems: list[str] = field(default_factory=list)
    unproven: list[str] = field(default_factory=list)

    @property
    def verdict(self) -> Verdict:
        if self.problems:
            return Verdict.BAD
        return Verdict.UNPROVEN if self.unproven else Verdict.SOUND


def verify_job(data_dir: Path, job: str, partitions: Sequence[int] = ()) -> Iterator[StoreReport]:
    """A report for each store of the job, in order. Blocks. An empty `partitions` means all.

    Raises UnknownError if there is no such folder or job, UnavailableError if the index cannot be read, OSError if
    links or copies are impossible for lack of space or permission.
    """
    layout = Layout(data_dir)
    known = _catalogues(layout)
    stores = sorted(s for s in known if s.job == job and (not partitions or s.partition in partitions))
    if not stores:
        chosen = f", partitions {', '.join(map(str, partitions))}" if partitions else ""
        raise UnknownError(f"{data_dir}: stores no file of job {job}{chosen}")
    for store in stores:
        yield _verify_settled(layout, store, known[store])


def _verify_settled(layout: Layout, store: StoreId, catalogue: StoreCatalogue) -> StoreReport:
    report = StoreReport(store, None)
    for attempt in range(ATTEMPTS):
        if attempt:
            catalogue = _catalogues(layout).get(store, StoreCatalogue())
        report = StoreReport(store, catalogue.newest_held())
        with _workplace(layout) as folder:
            try:
                _Check(layout, catalogue, report, folder).run()
                return report
            except FileNotFoundError as error:
                report.problems.append(f"{Path(str(error.filename)).name}: is in the index, but not on disk")
            except IntegrityError as error:
                report.problems.append(str(error))
                return report
    return report


def _catalogues(layout: Layout) -> dict[StoreId, StoreCatalogue]:
    """All stores, according to the index at this moment."""
    if not layout.index.is_dir() or not layout.tmp.is_dir():
        raise UnknownError(f"{layout.root}: not the data folder of a sidecar (it has no index)")
    failure: Exception | None = None
    for _ in range(ATTEMPTS):
        try:
            return _read_index(layout)
        # RocksDB's files may change while they are opened; the binding has no narrower exception class.
        except Exception as error:
            failure = error
    raise UnavailableError(f"{layout.index}: cannot be read: {failure}")


def _read_index(layout: Layout) -> dict[StoreId, StoreCatalogue]:
    found: dict[StoreId, StoreCatalogue] = {}
    with _workplace(layout) as folder:
        index = IndexReader(ReadOnlyDatabase(layout.index, log_dir=folder))
        try:
            for file in index.files():
                found.setdefault(file.entry.store, StoreCatalogue()).add(file.entry, file.arrived_ns / 1e9)
            for store, version in index.first_snapshots():
                found.setdefault(store, StoreCatalogue()).first_snapshots.add(version)
        finally:
            index.close()
    return found


@contextmanager
def _workplace(layout: Layout) -> Iterator[Path]:
    """A folder on the store's file system, for hard links. The sidecar's next start deletes leftovers."""
    folder = Path(tempfile.mkdtemp(prefix="verify-", dir=layout.tmp))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class _Check:
    """Checks one store's newest held version. `run` raises IntegrityError, and FileNotFoundError for a missing file."""

    def __init__(self, layout: Layout, catalogue: StoreCatalogue, report: StoreReport, folder: Path) -> None:
        self._layout = layout
        self._report = report
        self._files, self._database = folder / "files", folder / "database"
        closure = catalogue.closure(report.version) if report.version is not None else None
        self._closure = {name: entry for name in sorted(closure or ()) if (entry := catalogue.get(name)) is not None}

    def run(self) -> None:
        if self._report.version is None:
            raise IntegrityError("holds no version: files of every closure are missing")
        for folder in (self._files, self._database):
            folder.mkdir()
        for name in self._closure:  # all of them before the slow part: links outlive the sidecar's retention
            self._link(name)
        for entry in self._closure.values():
            self._compare(entry)
        base = self._open_snapshot()
        try:
            self._count(base)
        finally:
            if base is not None:
                base.close()

    def _linked(self, name: str) -> Path:
        return self._files / name.replace("/", "+")

    def _link(self, name: str) -> None:
        source, target = self._layout.path(self._report.store, name), self._linked(name)
        try:
            os.link(source, target, follow_symlinks=False)
        except FileNotFoundError:
            raise
        except OSError:
            shutil.copyfile(source, target)

    def _compare(self, entry: FileEntry) -> None:
        fd = os.open(self._linked(entry.name), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            size, crc = os.fstat(fd).st_size, checksum(fd)
        finally:
            os.close(fd)
        if (size, crc) != (entry.size_bytes, entry.crc32c):
            stored = f"{entry.size_bytes} with {entry.crc32c:08x}"
            raise IntegrityError(f"{entry.name}: {size} bytes with crc32c {crc:08x}, stored as {stored}")

    def _open_snapshot(self) -> SnapshotDatabase | None:
        zips = [entry for entry in self._closure.values() if entry.kind is FileKind.SNAPSHOT]
        if not zips:
            return None
        self._report.snapshot = zips[0].version
        metadata = unzip(self._linked(zips[0].name), self._database)
        listed = {name for name, _, _ in metadata.files}
        if listed != set(zips[0].references):
            raise IntegrityError(f"{zips[0].name}: names other data files than the index says")
        lay_out(metadata, lambda name, target: os.rename(self._linked(name), target), self._database)
        database = SnapshotDatabase(self._database)
        try:
            self._report.keys = database.count()
        except UnprovenError as error:
            self._report.unproven.append(str(error))
            return database
        except IntegrityError:
            database.close()
            raise
        if metadata.keys not in (None, self._report.keys):
            database.close()
            raise IntegrityError(
                f"{zips[0].name}: {self._report.keys} keys in the database, Spark counted {metadata.keys}"
            )
        return database

    def _count(self, base: SnapshotDatabase | None) -> None:
        """Replay the changelogs after the snapshot on top of its number of keys."""
        logs = [entry for entry in self._closure.values() if entry.kind is FileKind.CHANGELOG]
        logs.sort(key=lambda entry: entry.version or Version(0, ""))
        self._report.changelogs = len(logs)
        lives: dict[bytes, bool] = {}
        for entry in logs:
            data = self._linked(entry.name).read_bytes()
            if not changelog.readable(data):
                self._report.unproven.append(
                    f"{entry.name}: only its checksum was compared: it is not LZ4, or lz4 and xxhash are not installed "
                    "(pip install 'rhino-state[verify]')"
                )
                self._report.keys = None
                return
            parsed = changelog.parse(data)
            if parsed.lineage != tuple(entry.lineage):
                raise IntegrityError(f"{entry.name}: its header has another lineage than the index")
            lives.update((change.key, change.value is not None) for change in parsed.changes)
        if self._report.unproven:
            return
        before = sum(key in base for key in lives) if base is not None else 0
        self._report.keys = (self._report.keys or 0) - before + sum(lives.values())
