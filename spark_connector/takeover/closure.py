"""Determines the closure of a version, by reading the files in a folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rhino_core.errors import InvalidRequestError, LostError
from rhino_core.ids import FileEntry, FileKind, StoreVersion, Version, parse_name
from spark_connector.takeover.files import read_changelog
from worker_runtime.protocol.versions.closure import StoreCatalogue, changelog_name, snapshot_name
from worker_runtime.storage.arriving.zips import zip_references
from worker_runtime.verify import changelog

_ORDER = {FileKind.SST: 0, FileKind.LOG: 0, FileKind.SNAPSHOT: 1, FileKind.CHANGELOG: 2}


def closure_in(folder: Path, wanted: StoreVersion) -> list[FileEntry]:
    """Returns the closure in the order required by a sidecar: data files, snapshot, changelogs.

    The entries have sizes but no checksums. Raises LostError when files are missing, and PreconditionError when the
    compression of a changelog is not supported.
    """
    catalogue = StoreCatalogue(_entries(folder, wanted))
    names = catalogue.closure(wanted.version)
    if names is None:
        missing = ", ".join(sorted(catalogue.missing(wanted.version))[:5])
        raise LostError(f"{folder}: version {wanted.version} does not open from what is there; missing: {missing}")
    found = [entry for name in names if (entry := catalogue.get(name)) is not None]
    ordered = sorted(found, key=lambda e: (_ORDER[e.kind], e.version or Version(0, ""), e.name))
    return [_with_lineage(folder, entry) if entry.kind is FileKind.CHANGELOG else entry for entry in ordered]


def _entries(folder: Path, wanted: StoreVersion) -> list[FileEntry]:
    """Returns the files in the folder with names of format 2. Opens only possible snapshots of the version."""
    found = {}
    for path in folder.rglob("*") if folder.is_dir() else ():
        name = path.relative_to(folder).as_posix()
        try:
            parse_name(name)
        except InvalidRequestError:
            continue  # a checksum file or temporary file
        found[name] = FileEntry(wanted.store, name, path.stat().st_size, 0)
    newest = changelog_name(wanted.version)
    lineage: Sequence[Version] = ()
    if newest in found and snapshot_name(wanted.version) not in found:
        found[newest] = _with_lineage(folder, found[newest])
        lineage = found[newest].lineage
    for version in (*lineage, wanted.version):
        name = snapshot_name(version)
        if name in found:
            size_bytes = found[name].size_bytes
            found[name] = FileEntry(wanted.store, name, size_bytes, 0, references=zip_references(folder / name))
    return list(found.values())


def _with_lineage(folder: Path, entry: FileEntry) -> FileEntry:
    lineage = changelog.lineage(read_changelog(folder / entry.name))
    return FileEntry(entry.store, entry.name, entry.size_bytes, 0, lineage=lineage)
