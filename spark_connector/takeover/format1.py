"""Reads state of RocksDB checkpoint format 1, and names it as format 2 does.

The two formats differ in two places only. Format 2 has a unique id in the names of snapshots and changelogs, and its
changelogs begin with their lineage. So snapshots and data files keep their bytes. A changelog gets another header.

In format 1 a late task can overwrite a version. No task is left once the query has stopped, so the newest committed
version is safe to read then.
"""

from __future__ import annotations

import hashlib
import re
import uuid
from pathlib import Path

from rhino_core.errors import IntegrityError, InvalidRequestError, LostError
from rhino_core.ids import FileEntry, StoreId, StoreVersion, Version
from spark_connector.takeover.files import StateFile, StoreFiles, read_changelog
from worker_runtime.protocol.versions.closure import changelog_name, snapshot_name
from worker_runtime.storage.arriving.zips import zip_references
from worker_runtime.verify import changelog

_SNAPSHOT = re.compile(r"(\d+)\.zip")
_IDS = uuid.UUID("5b1f6a0e-6f0e-5a53-9d8f-0c8a3f1d7c11")  # namespace of the ids that this module makes


def files_of_format_1(folder: Path, store: StoreId, version: int) -> StoreFiles:
    """Returns the closure of `version`, under its names of format 2, in the order of a sidecar.

    The ids depend on the content only, so a repeated adoption of the same state finds its files stored already. Raises
    LostError for missing files, IntegrityError for damaged ones, and PreconditionError for changelogs with an
    unreadable compression.
    """
    base = _newest_snapshot(folder, version)
    changelogs = [folder / f"{number}.changelog" for number in range(base + 1, version + 1)]
    if missing := [path.name for path in changelogs if not path.is_file()]:
        raise LostError(
            f"{folder}: version {version} does not open from what is there: after "
            f"{f'snapshot {base}.zip' if base else 'the empty state'}, missing: {', '.join(missing[:5])}"
        )
    lineage: list[Version] = []
    files = _snapshot(folder, store, base, lineage) if base else []
    for number, path in enumerate(changelogs, start=base + 1):
        changelog.with_lineage(read_changelog(path), lineage)  # it can be converted
        named = Version(number, _id_of(store, number, path, lineage))
        entry = FileEntry(store, changelog_name(named), path.stat().st_size, 0, lineage=tuple(lineage))
        files.append(StateFile(entry, path, gets_lineage=True))
        lineage.append(named)
    return StoreFiles(StoreVersion(store, lineage[-1]), tuple(files))


def _newest_snapshot(folder: Path, version: int) -> int:
    """Returns the number of the newest snapshot up to `version`, or 0 when there is none."""
    found = (_SNAPSHOT.fullmatch(path.name) for path in folder.iterdir()) if folder.is_dir() else ()
    return max((number for match in found if match and (number := int(match[1])) <= version), default=0)


def _snapshot(folder: Path, store: StoreId, number: int, lineage: list[Version]) -> list[StateFile]:
    path = folder / f"{number}.zip"
    try:
        references = zip_references(path)
    except InvalidRequestError as error:
        raise IntegrityError(f"{path}: {error}") from error
    if missing := [name for name in references if not (folder / name).is_file()]:
        raise LostError(f"{path}: does not open from what is there; missing: {', '.join(sorted(missing)[:5])}")
    named = Version(number, _id_of(store, number, path, lineage))
    lineage.append(named)
    data = [
        StateFile(FileEntry(store, name, (folder / name).stat().st_size, 0), folder / name)
        for name in sorted(references)
    ]
    entry = FileEntry(store, snapshot_name(named), path.stat().st_size, 0, references=references)
    return [*data, StateFile(entry, path)]


def _id_of(store: StoreId, number: int, path: Path, lineage: list[Version]) -> str:
    """The id covers the content and its base: equal ids mean equal states."""
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    return str(uuid.uuid5(_IDS, f"{store}/{number}/{digest}/{lineage[-1].checkpoint_id if lineage else ''}"))
